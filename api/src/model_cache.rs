//! Models that requests have used lately. A request takes its model from here, and the statement that
//! charges it checks that its organization still sees this version: one round trip less, and a new
//! version takes effect at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use assay_core::OrgId;
use assay_core::model::published_model::VisibleVersion;

/// The largest number of models in the cache.
const MODELS_MAX: usize = 1000;

/// The organization, the id of the model, and the requested version, if there is one.
type Key = (OrgId, String, Option<String>);

/// Models that requests have used lately, in no order.
#[derive(Default)]
pub struct ModelCache(Mutex<HashMap<Key, Arc<VisibleVersion>>>);

fn key(org_id: &OrgId, model_id: &str, version: Option<&str>) -> Key {
    (
        org_id.clone(),
        model_id.to_owned(),
        version.map(str::to_owned),
    )
}

impl ModelCache {
    /// Returns what the organization has last seen as this version of the model.
    pub fn get(
        &self,
        org_id: &OrgId,
        model_id: &str,
        version: Option<&str>,
    ) -> Option<Arc<VisibleVersion>> {
        let models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.get(&key(org_id, model_id, version)).map(Arc::clone)
    }

    /// Stores a model that was looked up. A full cache is emptied first.
    pub fn put(
        &self,
        org_id: &OrgId,
        model_id: &str,
        version: Option<&str>,
        found: Arc<VisibleVersion>,
    ) {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if models.len() >= MODELS_MAX {
            models.clear();
        }
        models.insert(key(org_id, model_id, version), found);
    }
}
