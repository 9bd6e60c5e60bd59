//! The charge of a serving request: made before the engine is called, kept with the result, and
//! refunded without one.

use std::sync::Arc;

use assay_core::model::published_model::VisibleVersion;
use assay_core::model::serving::Units;
use assay_core::runtime::prometheus;
use assay_core::store::catalog::ExpectedModel;
use assay_core::store::serving::{self, Charged, Key};
use assay_core::{BestEffort as _, Details, Error, OrgId, Result};
use tokio::task::JoinHandle;

use crate::app::App;

/// The units of a request, and the organization that they are charged to.
#[derive(Clone)]
pub(super) struct ChargedRequest {
    /// The state of the process.
    pub(super) app: App,
    /// The organization.
    pub(super) org_id: OrgId,
    /// The idempotency key, and the digest of the request.
    pub(super) idempotency: Option<(String, [u8; 32])>,
    /// The units.
    pub(super) units: Units,
    /// The plan's limit of the month.
    pub(super) max: i64,
}

impl ChargedRequest {
    /// Charges the units, unless an earlier request with the same idempotency key was charged. Returns
    /// `None` if the organization does not see the expected version of the model any more.
    pub(super) async fn charge(
        self,
        requested_version: Option<String>,
        expected: Option<Arc<VisibleVersion>>,
    ) -> Result<Option<Charge>> {
        let expected = expected.as_deref().map(|expected| ExpectedModel {
            id: &expected.published.file.id,
            requested_version: requested_version.as_deref(),
            version: &expected.published.file.version,
            is_own: expected.is_own,
        });
        let charged = {
            let pool = self.app.db.get();
            let mut db = pool.acquire().await?;
            let Self {
                org_id, units, max, ..
            } = &self;
            match self.key() {
                Some(key) => {
                    serving::charge_once(&mut db, org_id, key, *units, *max, expected.as_ref())
                        .await?
                }
                None => serving::charge(&mut db, org_id, *units, *max, expected.as_ref()).await?,
            }
        };
        if charged == Charged::ModelChanged {
            return Ok(None);
        }
        Ok(Some(match self.admit(charged)? {
            Some(charged) => Charge::New(PendingCharge::new(self, charged)),
            None => Charge::Before(self),
        }))
    }

    /// Charges a repeated request that has a result, if the first request was refunded meanwhile.
    /// Returns the charge, or `None` if that was not necessary.
    ///
    /// # Errors
    /// 429 if the units left for the month do not suffice.
    async fn charge_repeated(self) -> Result<Option<PendingCharge>> {
        let Some(key) = self.key() else {
            return Ok(None);
        };
        let charged = {
            let pool = self.app.db.get();
            let mut db = pool.acquire().await?;
            serving::charge_repeated(&mut db, &self.org_id, key, self.units, self.max).await?
        };
        let charged = self.admit(charged)?;
        Ok(charged.map(|charged| PendingCharge::new(self, charged)))
    }

    fn key(&self) -> Option<Key<'_>> {
        let (key, request_sha256) = self.idempotency.as_ref()?;
        Some(Key {
            key,
            request_sha256,
        })
    }

    /// Returns the new charge, or `None` if an earlier request was charged.
    fn admit(&self, charged: Charged) -> Result<Option<serving::Charge>> {
        let Self { units, max, .. } = self;
        let decision = |decision| {
            metrics::counter!(
                prometheus::QUOTA_DECISIONS,
                "limit" => units.unit.limit(),
                "decision" => decision
            )
            .increment(1);
        };
        match charged {
            Charged::New(charge) => {
                decision("admitted");
                Ok(Some(charge))
            }
            Charged::Before { is_same: true } => Ok(None),
            Charged::Before { is_same: false } => Err(Error::field(
                "Idempotency-Key",
                "conflict",
                "was used for a different request; use a new key",
            )),
            Charged::ModelChanged => Err(Error::internal("the model of a charge has changed")),
            Charged::MonthFull { resets_at, seconds } => {
                decision("refused");
                let details = Details::Quota {
                    limit: units.unit.limit(),
                    max: *max,
                    active: None,
                    resets_at,
                };
                let message = format!(
                    "This request would exceed the plan's {max} {} a month.",
                    units.unit.as_str().replace('_', " ")
                );
                Err(Error::quota(message, details, seconds))
            }
        }
    }
}

/// The charge of a request.
pub(super) enum Charge {
    New(PendingCharge),
    /// An earlier request with the same idempotency key was charged, and may be refunded yet.
    Before(ChargedRequest),
    /// The charge of an earlier request is for this one as well.
    Earlier,
}

impl Charge {
    /// Keeps the charge when it is dropped, because the request has a result. A repeated request is
    /// charged now if the first one was refunded meanwhile. Returns whether an earlier request was
    /// charged.
    ///
    /// # Errors
    /// 429 if the units left for the month do not suffice.
    pub(super) async fn keep(&mut self) -> Result<bool> {
        if let Self::Before(request) = self {
            let tasks = request.app.request_tasks.clone();
            // A task of its own, as the first charge.
            let charge = tasks.spawn(request.clone().charge_repeated());
            *self = charge
                .await
                .map_err(Error::internal)??
                .map_or(Self::Earlier, Self::New);
        }
        Ok(match self {
            Self::New(charge) => {
                charge.is_kept = true;
                false
            }
            Self::Before(_) | Self::Earlier => true,
        })
    }

    /// Refunds the charge, so that the usage is right when the client reads the response. The charge
    /// of an earlier request stays.
    pub(super) async fn refund(self) {
        if let Self::New(charge) = self {
            charge.refund().await;
        }
    }
}

/// A charge that is refunded when it is dropped, unless it is kept: an error, or a client that
/// disconnects, drops it.
pub(super) struct PendingCharge {
    request: ChargedRequest,
    charged: Option<serving::Charge>,
    is_kept: bool,
}

impl PendingCharge {
    fn new(request: ChargedRequest, charged: serving::Charge) -> Self {
        Self {
            request,
            charged: Some(charged),
            is_kept: false,
        }
    }

    async fn refund(mut self) {
        if let Some(refund) = self.spawn_refund() {
            let _ = refund.await;
        }
    }

    /// Starts the refund as a task of its own: a client that disconnects does not stop it.
    fn spawn_refund(&mut self) -> Option<JoinHandle<()>> {
        let charged = self.charged.take()?;
        let ChargedRequest {
            app,
            org_id,
            idempotency,
            ..
        } = &mut self.request;
        let (app, org_id, idempotency) = (app.clone(), org_id.clone(), idempotency.take());
        Some(self.request.app.request_tasks.spawn(async move {
            let key = idempotency.as_ref().map(|(key, _)| key.as_str());
            serving::refund(&app.db.get(), &org_id, &charged, key)
                .await
                .best_effort("refunding a serving request");
        }))
    }
}

impl Drop for PendingCharge {
    fn drop(&mut self) {
        if !self.is_kept {
            self.spawn_refund();
        }
    }
}
