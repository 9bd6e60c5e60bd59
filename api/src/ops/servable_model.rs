//! The models that can serve an operation.

use assay_core::model::error_details::Endpoint;
use assay_core::model::published_model::ServedVersion;
use assay_core::model::served_model::ServedModel;
use assay_core::{Details, Error, Resource, Result};

/// A model that can serve a request.
pub(super) struct Servable {
    /// The model, as the engine client needs it.
    pub(super) served: ServedModel,
    /// The time that ranking takes for a sequence of the context's full length, in microseconds.
    pub(super) sequence_us: i64,
    /// The operations that the model offers.
    pub(super) endpoints: Vec<Endpoint>,
}

/// Returns the model of a version, if it can serve an operation. `needs_items` is set if the request
/// returns items of the catalog that it does not name.
///
/// # Errors
/// 409 if it does not serve the operation.
pub(super) fn ensure_servable(
    version: &ServedVersion,
    endpoint: Endpoint,
    needs_items: bool,
) -> Result<Servable> {
    let ServedVersion { file, package } = version;
    if !file.endpoints.contains(&endpoint) {
        let message = format!("The model does not offer {endpoint}.");
        return Err(Error::invalid_state(Resource::Model, message).with_details(
            Details::EndpointNotOffered {
                endpoints: file.endpoints.clone(),
            },
        ));
    }
    let Some(package) = package else {
        let message = "The model was published as a card, without a package that can be served.";
        return Err(Error::invalid_state(Resource::Model, message).with_details(Details::NoEngine));
    };
    let served = package.served_model(file)?;
    if needs_items && !served.returns_items {
        let message = "No tokenizer is fitted, so the model cannot return items of a catalog. \
                       `embed`, and `predict` with options, still work.";
        return Err(Error::invalid_state(Resource::Model, message)
            .with_details(Details::TokenizerNotFitted));
    }
    Ok(Servable {
        sequence_us: package.sequence_us,
        served,
        endpoints: file.endpoints.clone(),
    })
}

/// Returns the 409 for a variant of an operation that the model's engine does not compute.
pub(super) fn not_offered(model: &Servable, why: &str) -> Error {
    let message = format!("The model does not offer this variant of the operation: {why}.");
    Error::invalid_state(Resource::Model, message).with_details(Details::EndpointNotOffered {
        endpoints: model.endpoints.clone(),
    })
}
