//! The rpcs of `LeaderboardService`.

use assay_core::model::permissions::{BoardReader, Credential, EvalSubmitter, JobReader};
use assay_proto::v1;
use assay_proto::v1::leaderboard_service_server::LeaderboardService;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::ops::boards::{self, BoardQuery, NewEntryFields};

#[tonic::async_trait]
impl LeaderboardService for Service {
    async fn create_entry(
        &self,
        request: Request<v1::CreateEntryRequest>,
    ) -> Result<Response<v1::CreateEntryResponse>, Status> {
        self.respond(request, |app, submitter: EvalSubmitter, input| async move {
            let v1::CreateEntryRequest { job_id, name, url } = input.message;
            let new = NewEntryFields {
                name: &name,
                url: url.as_deref(),
                marks_final: false,
            };
            let entry = boards::enter(&app, &submitter, &job_id, new).await?;
            Ok(v1::CreateEntryResponse {
                entry: Some(entry.into()),
            })
        })
        .await
    }

    async fn delete_entry(
        &self,
        request: Request<v1::DeleteEntryRequest>,
    ) -> Result<Response<v1::DeleteEntryResponse>, Status> {
        self.respond(request, |app, submitter: EvalSubmitter, input| async move {
            let entry = boards::withdraw(&app, &submitter, &input.message.entry_id).await?;
            Ok(v1::DeleteEntryResponse {
                entry: Some(entry.into()),
            })
        })
        .await
    }

    async fn list_entries(
        &self,
        request: Request<v1::ListEntriesRequest>,
    ) -> Result<Response<v1::ListEntriesResponse>, Status> {
        self.respond(request, |app, caller: JobReader, input| async move {
            let v1::ListEntriesRequest {
                suite_id,
                limit,
                before,
            } = input.message;
            let before = before.map(|time| time.to_string());
            let page = boards::list_entries(&app, &caller, suite_id, limit, before).await?;
            Ok(page.into())
        })
        .await
    }

    async fn get_leaderboard(
        &self,
        request: Request<v1::GetLeaderboardRequest>,
    ) -> Result<Response<v1::GetLeaderboardResponse>, Status> {
        let reader = BoardReader::of(request.extensions().get::<Credential>());
        self.respond_to_anyone(request, |app, input| async move {
            let v1::GetLeaderboardRequest {
                suite_id,
                version,
                limit,
                cursor,
            } = input.message;
            let query = BoardQuery {
                version,
                limit,
                cursor,
            };
            let board = boards::get(&app, &reader?, &suite_id, query).await?;
            Ok(v1::GetLeaderboardResponse {
                board: Some(board.into()),
            })
        })
        .await
    }
}
