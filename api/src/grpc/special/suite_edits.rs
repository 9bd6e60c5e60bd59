//! The caller's own suites: messages with other messages.

use assay_core::model::grant::GrantLink;
use assay_core::model::permissions::Publisher;
use assay_core::model::suite_edits::SuiteEdits;
use assay_eval::suite::{SuiteLink, SuiteMetadata};
use assay_proto::v1;
use tonic::{Request, Response, Status};

use crate::grpc::service::Service;
use crate::ops::grants::{self, NewGrant};
use crate::ops::suite_edits::{self, Edits};

/// Updates a suite.
pub async fn update_suite(
    service: &Service,
    request: Request<v1::UpdateSuiteRequest>,
) -> Result<Response<v1::UpdateSuiteResponse>, Status> {
    service
        .respond(request, |app, publisher: Publisher, input| async move {
            let v1::UpdateSuiteRequest {
                suite_id,
                title,
                description,
                license,
                citation,
                links,
                tags,
                contact,
                visibility,
                access,
                clear,
                confirm,
                if_match,
            } = input.message;
            let links: Vec<SuiteLink> = links
                .into_iter()
                .map(|v1::SuiteLink { label, url }| SuiteLink { label, url })
                .collect();
            let edits = Edits {
                changes: SuiteEdits {
                    // A message cannot distinguish an empty list from an absent one. `clear` empties it.
                    metadata: SuiteMetadata {
                        title,
                        description,
                        license,
                        citation,
                        links: (!links.is_empty()).then_some(links),
                        tags: (!tags.is_empty()).then_some(tags),
                        contact,
                    },
                    visibility,
                    access,
                    clear,
                },
                confirm: confirm.unwrap_or(false),
                if_match,
            };
            let suite = suite_edits::update(&app, &publisher, &suite_id, edits).await?;
            Ok(v1::UpdateSuiteResponse {
                suite: Some(suite.into()),
            })
        })
        .await
}

/// Creates a grant.
pub async fn create_grant(
    service: &Service,
    request: Request<v1::CreateGrantRequest>,
) -> Result<Response<v1::CreateGrantResponse>, Status> {
    service
        .respond(request, |app, publisher: Publisher, input| async move {
            let v1::CreateGrantRequest {
                suite_id,
                org_id,
                domain,
                link,
            } = input.message;
            let link = link.map(
                |v1::GrantLink {
                     max_uses,
                     expires_in_days,
                 }| GrantLink {
                    max_uses,
                    expires_in_days,
                },
            );
            let new = NewGrant {
                org_id,
                domain,
                link,
            };
            let grant = grants::create(&app, &publisher, &suite_id, new).await?;
            Ok(v1::CreateGrantResponse {
                grant: Some(grant.into()),
            })
        })
        .await
}
