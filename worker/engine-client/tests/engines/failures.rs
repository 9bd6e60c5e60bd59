//! Engines that fail, hang or stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use assay_core::Code;
use assay_core::Error;
use assay_core::model::serving::PredictOptions;
use assay_engine_client::{CallOptions, Engines, Priority};
use assay_inference::ids;
use assay_inference::v2::{ModelInferRequest, ModelInferResponse};
use tonic::Status;

use crate::fake_engine::{CALL, FakeEngine, PREDICT, Reply, external, response, sequence};

/// A valid result for one row.
fn one_row(request: &ModelInferRequest) -> ModelInferResponse {
    response(request, |tensors| {
        tensors.push(ids::ITEM_IDS, &[1, 1], ["ramen"]);
        tensors.push(ids::SCORES, &[1, 1], [-0.5_f32]);
    })
}

const ONE: PredictOptions = PredictOptions {
    top_k: Some(1),
    ..PREDICT
};

/// Calls the engine with one sequence.
async fn call(client: &Engines, options: CallOptions) -> Result<(), Error> {
    let sequences = [sequence("p7", &["ramen"])];
    let computed = client
        .predict(&external(), &sequences, &ONE, options)
        .await?;
    assert_eq!(computed.results[0].as_ref().unwrap().item_ids, ["ramen"]);
    Ok(())
}

fn is_open(client: &Engines) -> bool {
    client.health()[0].is_circuit_open
}

/// Calls until the engine responds again.
async fn call_until_recovered(client: &Engines) {
    while let Err(error) = call(client, CALL).await {
        assert_eq!(error.code, Code::Unavailable, "{}", error.log_text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn status_of_engine_decides_code() {
    for (status, expected) in [
        (Status::unavailable("engine text"), Code::Unavailable),
        (Status::resource_exhausted("engine text"), Code::Unavailable),
        (Status::deadline_exceeded("engine text"), Code::Unavailable),
        (Status::not_found("engine text"), Code::Internal),
        (Status::invalid_argument("engine text"), Code::Internal),
        (Status::failed_precondition("engine text"), Code::Internal),
        (Status::internal("engine text"), Code::Internal),
    ] {
        let code = status.code();
        let engine = FakeEngine::start(move |_| Reply::Now(Err(Status::new(code, "engine text"))));
        let client = engine.client(1).await;
        let error = call(&client, CALL).await.unwrap_err();
        assert_eq!(error.code, expected, "{code:?}");
        let is_unavailable = expected == Code::Unavailable;
        assert_eq!(error.retry_after, is_unavailable.then_some(1), "{code:?}");
        assert!(!error.to_string().contains("engine text"));
        assert!(error.log_text().contains("engine text"));
        // A call that was sent is not repeated.
        assert_eq!(engine.requests().len(), 1, "{code:?}");
    }
}

#[tokio::test]
async fn slow_engine_succeeds_within_deadline() {
    let engine =
        FakeEngine::start(|request| Reply::After(Duration::from_millis(300), one_row(request)));
    let client = engine.client(1).await;
    call(&client, CALL).await.unwrap();
}

#[tokio::test]
async fn hanging_engine_ends_at_deadline() {
    let engine = FakeEngine::start(|_| Reply::Never);
    let client = engine.client(1).await;
    let options = CallOptions {
        deadline: Duration::from_millis(200),
        ..CALL
    };
    for _ in 0..5 {
        assert!(!is_open(&client));
        let error = call(&client, options).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable);
        assert!(
            error.log_text().contains("engine default"),
            "{}",
            error.log_text()
        );
    }
    assert!(is_open(&client), "five timeouts");
    let timeouts = engine.timeouts();
    assert_eq!(timeouts.len(), 5);
    assert!(timeouts.iter().all(|timeout| !timeout.is_empty()));
    assert_eq!(client.health()[0].permits_used, 0);
    // The open circuit refuses calls without sending them.
    let error = call(&client, CALL).await.unwrap_err();
    assert_eq!(
        (error.code, error.retry_after),
        (Code::Unavailable, Some(1))
    );
    assert_eq!(engine.requests().len(), 5);
}

#[tokio::test]
async fn killed_engine_opens_circuit_until_it_recovers() {
    let engine = FakeEngine::start(|request| Reply::Now(Ok(one_row(request))));
    let address = engine.address;
    let client = engine.client(1).await;
    call(&client, CALL).await.unwrap();
    drop(engine);
    for _ in 0..5 {
        assert!(!is_open(&client));
        assert_eq!(
            call(&client, CALL).await.unwrap_err().code,
            Code::Unavailable
        );
    }
    assert!(is_open(&client));
    let error = call(&client, CALL).await.unwrap_err();
    assert!(
        error.cause.is_none(),
        "refused without a call: {}",
        error.log_text()
    );
    let engine = FakeEngine::start_at(address, |request| Reply::Now(Ok(one_row(request))));
    call_until_recovered(&client).await;
    assert!(!is_open(&client));
    // The trial call, and no call before it.
    assert_eq!(engine.requests().len(), 1);
}

#[tokio::test]
async fn engine_killed_during_call_is_unavailable() {
    let engine = FakeEngine::start(|_| Reply::Never);
    let client = engine.client(1).await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { call(&client, CALL).await }
    });
    while engine.in_progress() == 0 {
        tokio::task::yield_now().await;
    }
    drop(engine);
    let error = calling.await.unwrap().unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{}", error.log_text());
}

#[tokio::test]
async fn absent_host_is_unavailable() {
    let (folder, artifacts) = crate::fake_engine::artifacts().await;
    let address = "default=http://engine.invalid:9500".parse().unwrap();
    let client = Engines::new(&[address], artifacts, 1);
    let error = call(&client, CALL).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{}", error.log_text());
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn invalid_results_open_circuit() {
    let engine = FakeEngine::start(|request| Reply::Now(Ok(response(request, |_| {}))));
    let client = engine.client(1).await;
    for _ in 0..5 {
        assert!(!is_open(&client));
        assert_eq!(call(&client, CALL).await.unwrap_err().code, Code::Internal);
    }
    assert!(is_open(&client));
}

/// Returns the status of an engine that has too many calls.
fn shed() -> Status {
    let mut status = Status::resource_exhausted("text");
    let value = ids::RETRY_PUSHBACK.parse().unwrap();
    status
        .metadata_mut()
        .insert(ids::RETRY_PUSHBACK_HEADER, value);
    status
}

#[tokio::test]
async fn rejected_and_shed_calls_do_not_open_circuit() {
    for status in [
        shed(),
        Status::not_found("text"),
        Status::invalid_argument("text"),
    ] {
        let engine = FakeEngine::start({
            let status = status.clone();
            move |_| Reply::Now(Err(status.clone()))
        });
        let client = engine.client(1).await;
        for _ in 0..30 {
            call(&client, CALL).await.unwrap_err();
        }
        assert!(!is_open(&client), "{status:?}");
        assert_eq!(engine.requests().len(), 30);
    }
}

#[tokio::test]
async fn failed_calls_open_circuit() {
    for code in [
        tonic::Code::Unknown,
        tonic::Code::ResourceExhausted,
        tonic::Code::Aborted,
        tonic::Code::Unimplemented,
        tonic::Code::Internal,
        tonic::Code::DataLoss,
    ] {
        let engine = FakeEngine::start(move |_| Reply::Now(Err(Status::new(code, "text"))));
        let client = engine.client(1).await;
        for _ in 0..5 {
            assert!(!is_open(&client), "{code:?}");
            call(&client, CALL).await.unwrap_err();
        }
        assert!(is_open(&client), "{code:?}");
        call(&client, CALL).await.unwrap_err();
        assert_eq!(engine.requests().len(), 5, "{code:?}");
    }
}

#[tokio::test]
async fn job_opens_circuit_of_exhausted_engine() {
    let engine = FakeEngine::start(|_| Reply::Now(Err(Status::resource_exhausted("text"))));
    let client = engine.client(1).await;
    let job = CallOptions {
        priority: Priority::Job,
        ..CALL
    };
    let error = call(&client, job).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(is_open(&client));
    assert_eq!(engine.requests().len(), 5);
}

#[tokio::test]
async fn jobs_wait_for_a_saturated_engine() {
    let refusals = Arc::new(AtomicUsize::new(2));
    let engine = FakeEngine::start({
        let refusals = Arc::clone(&refusals);
        move |request| {
            let less = |left: usize| left.checked_sub(1);
            match refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
                Ok(_) => Reply::Now(Err(shed())),
                Err(_) => Reply::Now(Ok(one_row(request))),
            }
        }
    });
    let client = engine.client(1).await;
    let job = CallOptions {
        priority: Priority::Job,
        ..CALL
    };
    call(&client, job).await.unwrap();
    assert_eq!(engine.requests().len(), 3);
    refusals.store(1, Ordering::SeqCst);
    let refused = call(&client, CALL).await.unwrap_err();
    assert_eq!(
        (refused.code, engine.requests().len()),
        (Code::Unavailable, 4)
    );
    // Not until after the deadline.
    refusals.store(usize::MAX, Ordering::SeqCst);
    let short = CallOptions {
        deadline: Duration::from_millis(600),
        ..job
    };
    let refused = call(&client, short).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    // One call every quarter of a second, before it at most three.
    assert!(engine.requests().len() <= 7);
}

#[tokio::test]
async fn waiting_job_does_not_keep_circuit_open() {
    const FAILS: usize = 0;
    const EXHAUSTED: usize = 1;
    let state = Arc::new(AtomicUsize::new(FAILS));
    let engine = FakeEngine::start({
        let state = Arc::clone(&state);
        move |request| match state.load(Ordering::SeqCst) {
            FAILS => Reply::Now(Ok(response(request, |_| {}))),
            EXHAUSTED => Reply::Now(Err(shed())),
            _ => Reply::Now(Ok(one_row(request))),
        }
    });
    let client = engine.client(1).await;
    for _ in 0..5 {
        call(&client, CALL).await.unwrap_err();
    }
    assert!(is_open(&client));
    state.store(EXHAUSTED, Ordering::SeqCst);
    // The circuit lets a trial through after a second: that of a job, which waits then.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let job = CallOptions {
        priority: Priority::Job,
        ..CALL
    };
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { call(&client, job).await }
    });
    while engine.requests().len() < 6 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    state.store(2, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    call(&client, CALL).await.unwrap();
    assert!(!is_open(&client));
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn cancelled_trial_does_not_keep_circuit_open() {
    let hangs = Arc::new(AtomicBool::new(true));
    let engine = FakeEngine::start({
        let hangs = Arc::clone(&hangs);
        move |request| match hangs.load(Ordering::SeqCst) {
            true => Reply::Never,
            false => Reply::Now(Ok(one_row(request))),
        }
    });
    let client = engine.client(1).await;
    let short = CallOptions {
        deadline: Duration::from_millis(100),
        ..CALL
    };
    for _ in 0..5 {
        call(&client, short).await.unwrap_err();
    }
    // The caller of the trial disconnects.
    while engine.requests().len() == 5 {
        let _ = tokio::time::timeout(Duration::from_millis(200), call(&client, CALL)).await;
    }
    assert!(is_open(&client));
    assert_eq!(client.health()[0].permits_used, 0);
    hangs.store(false, Ordering::SeqCst);
    call(&client, CALL).await.unwrap();
    assert!(!is_open(&client));
}

#[tokio::test]
async fn failing_engine_does_not_affect_others() {
    let engine = FakeEngine::start(|request| Reply::Now(Ok(one_row(request))));
    let failing = FakeEngine::start(|_| Reply::Now(Err(Status::unavailable("text"))));
    let (folder, artifacts) = crate::fake_engine::artifacts().await;
    let addresses = [("default", &engine), ("triton", &failing)]
        .map(|(name, engine)| format!("{name}=http://{}", engine.address).parse().unwrap());
    let client = Engines::new(&addresses, artifacts, 1);
    assert_eq!(client.names().collect::<Vec<_>>(), ["default", "triton"]);
    let mut model = external();
    let sequences = [sequence("p7", &["ramen"])];
    for _ in 0..6 {
        model.engine = "triton".into();
        client
            .predict(&model, &sequences, &ONE, CALL)
            .await
            .unwrap_err();
        model.engine = "default".into();
        client
            .predict(&model, &sequences, &ONE, CALL)
            .await
            .unwrap();
    }
    let open: Vec<_> = client
        .health()
        .iter()
        .map(|engine| engine.is_circuit_open)
        .collect();
    assert_eq!(open, [false, true]);
    model.engine = "gpu".into();
    let error = client
        .predict(&model, &sequences, &ONE, CALL)
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::Internal);
    assert!(
        error
            .log_text()
            .contains("ASSAY_ENGINES names no engine \"gpu\"")
    );
    std::fs::remove_dir_all(folder).unwrap();
}
