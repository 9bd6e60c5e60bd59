//! Messages of `ModelService`.

use assay_core::model::catalog::{Codebook, Model, ModelCard, Models};

use super::timestamp;
use crate::v1;

impl From<Models> for v1::ListModelsResponse {
    fn from(listing: Models) -> Self {
        let Models { models } = listing;
        Self {
            models: models.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Model> for v1::Model {
    fn from(model: Model) -> Self {
        let Model {
            id,
            task,
            status,
            context_length,
            requires_tokenizer,
            endpoints,
        } = model;
        let endpoints = endpoints
            .into_iter()
            .map(|endpoint| endpoint.as_str().to_owned())
            .collect();
        Self {
            id,
            task,
            status,
            context_length,
            requires_tokenizer,
            endpoints,
        }
    }
}

impl From<ModelCard> for v1::ModelCard {
    fn from(card: ModelCard) -> Self {
        let ModelCard {
            id,
            task,
            status,
            version,
            context_length,
            embedding_dim,
            codebook,
            adapted,
            adapted_at,
            pretrain_domains,
        } = card;
        let Codebook {
            levels,
            resolution,
            base_size,
        } = codebook;
        let codebook = v1::Codebook {
            levels,
            resolution: resolution.to_string(),
            base_size,
        };
        Self {
            id,
            task,
            status,
            version,
            context_length,
            embedding_dim,
            codebook: Some(codebook),
            adapted,
            adapted_at: adapted_at.map(timestamp),
            pretrain_domains,
        }
    }
}
