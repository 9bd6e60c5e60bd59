//! Permits: the call count in progress, and the share of jobs.

use std::sync::Arc;
use std::time::Duration;

use assay_core::Code;
use assay_core::Error;
use assay_core::model::serving::PredictOptions;
use assay_engine_client::{CallOptions, Engines, Priority};
use assay_inference::ids;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::fake_engine::{CALL, FakeEngine, PREDICT, Reply, external, response, sequence};

const JOB: CallOptions = CallOptions {
    priority: Priority::Job,
    ..CALL
};

/// An engine that responds to as many calls as the test has allowed.
fn gated() -> (FakeEngine, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let engine = FakeEngine::start({
        let gate = Arc::clone(&gate);
        move |request| {
            // The fake engine has one thread, so it waits in turns.
            match gate.try_acquire() {
                Ok(permit) => {
                    permit.forget();
                    Reply::Now(Ok(response(request, |tensors| {
                        tensors.push(ids::ITEM_IDS, &[1, 1], ["ramen"]);
                        tensors.push(ids::SCORES, &[1, 1], [-0.5_f32]);
                    })))
                }
                Err(_) => Reply::Never,
            }
        }
    });
    (engine, gate)
}

fn start(client: &Engines, options: CallOptions) -> JoinHandle<Result<(), Error>> {
    let client = client.clone();
    tokio::spawn(async move {
        let sequences = [sequence("p7", &["ramen"])];
        let predict = PredictOptions {
            top_k: Some(1),
            ..PREDICT
        };
        let computed = client
            .predict(&external(), &sequences, &predict, options)
            .await?;
        computed.results[0].as_ref().unwrap();
        Ok(())
    })
}

async fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn call_without_permit_fails_at_once() {
    let (engine, gate) = gated();
    let client = engine.client(1).await;
    assert_eq!(client.permits(), 4);
    let calls: Vec<_> = (0..4).map(|_| start(&client, CALL)).collect();
    wait_for(|| engine.in_progress() == 4).await;
    assert_eq!(client.health()[0].permits_used, 4);
    let error = start(&client, CALL).await.unwrap().unwrap_err();
    assert_eq!(
        (error.code, error.retry_after),
        (Code::Unavailable, Some(1))
    );
    assert!(!client.health()[0].is_circuit_open);
    // A caller that disconnects returns its permit, and ends the call of the engine.
    calls[0].abort();
    wait_for(|| engine.in_progress() == 3).await;
    assert_eq!(client.health()[0].permits_used, 3);
    gate.add_permits(1);
    start(&client, CALL).await.unwrap().unwrap();
    assert_eq!(engine.requests().len(), 5, "the refused call was not sent");
}

#[tokio::test]
async fn jobs_use_half_of_permits() {
    let (engine, gate) = gated();
    let client = engine.client(1).await;
    let jobs: Vec<_> = (0..2).map(|_| start(&client, JOB)).collect();
    wait_for(|| engine.in_progress() == 2).await;
    let waiting = start(&client, JOB);
    // Synchronous calls use the other half, while the third job waits.
    gate.add_permits(1);
    start(&client, CALL).await.unwrap().unwrap();
    assert_eq!(engine.requests().len(), 3);
    assert_eq!(client.health()[0].permits_used, 2);
    gate.add_permits(1);
    jobs[0].abort();
    waiting.await.unwrap().unwrap();
    assert_eq!(engine.requests().len(), 4);
}

#[tokio::test]
async fn job_waits_until_its_deadline() {
    let (engine, _gate) = gated();
    let client = engine.client(1).await;
    let _jobs: Vec<_> = (0..2).map(|_| start(&client, JOB)).collect();
    wait_for(|| engine.in_progress() == 2).await;
    let options = CallOptions {
        deadline: Duration::from_millis(100),
        ..JOB
    };
    let error = start(&client, options).await.unwrap().unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert_eq!(engine.requests().len(), 2);
    assert!(!client.health()[0].is_circuit_open);
}
