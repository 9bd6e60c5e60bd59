//! `EvalService`

use assay_core::Error;
use assay_core::principal::{Submitter, TermsAccepted};
use assay_proto::convert::predictions_json;
use assay_proto::v1;
use assay_proto::v1::eval_service_server::EvalService;
use tonic::{Request, Response, Status};

use super::Service;
use crate::ops::evals::{self, Accepted, Origin, Submission};

#[tonic::async_trait]
impl EvalService for Service {
    async fn create_eval(&self, request: Request<v1::CreateEvalRequest>) -> Result<Response<v1::CreateEvalResponse>, Status> {
        self.answer(request, |app, submitter: TermsAccepted<Submitter>, input| async move {
            let v1::CreateEvalRequest { suite_id, predictions, input_ref, label, idempotency_key } = input.message;
            // proto3 cannot tell an empty list from none.
            let predictions = (!predictions.is_empty()).then(|| predictions_json(&predictions)).transpose().map_err(Error::internal)?;
            let submission = Submission { suite_id, predictions: predictions.map(Into::into), input_ref, label, idempotency_key };
            let origin = Origin::of(input.call);
            let Accepted { job, replayed } = evals::submit(&app, &submitter, submission, origin).await?;
            Ok(v1::CreateEvalResponse { job: Some(job.into()), idempotency_replayed: replayed })
        })
        .await
    }
}
