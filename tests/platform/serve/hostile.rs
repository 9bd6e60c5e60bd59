//! Calls and packages that are not valid.

use assay_core::model::package::{ITEMS_FILE, MANIFEST_FILE, WEIGHTS_FILE};
use assay_inference::v2::{InferTensorContents, ModelInferRequest};
use bytes::Bytes;
use tonic::Code;

use super::calls::{self, History, Operation};
use super::{Engine, packages};
use crate::telemetry::sum;

#[tokio::test(flavor = "multi_thread")]
async fn unknown_package_is_not_found() {
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::golden("one-level")).await;
    let call = |name: &str, version: &str| ModelInferRequest {
        model_name: name.to_owned(),
        model_version: version.to_owned(),
        ..calls::predict(&package, &[])
    };
    let name = package.to_string();
    let digest = name.rsplit('/').next().unwrap();
    for (name, version) in [
        (name.as_str(), "2"),
        (name.as_str(), ""),
        ("", "1"),
        ("next-1", "1"),
        ("models/next-1/1/0123456789abcdef", "1"),
        (&format!("models/../models/next-1/1/{digest}"), "1"),
        (&format!("models/next-1/../next-1/1/{digest}"), "1"),
        (&format!("models/next-1/../{digest}"), ".."),
        (&format!("/{name}"), "1"),
        (&format!("{name}/"), "1"),
        (&format!("orgs/org_1/{name}"), "1"),
    ] {
        let status = engine.infer(call(name, version)).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{name} {version}: {status}");
    }
    engine.infer(call(&name, "1")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tampered_package_is_not_served() {
    let engine = Engine::start(&[]).await;
    let files = packages::golden("one-level");
    for (version, file) in [("1", WEIGHTS_FILE), ("2", ITEMS_FILE), ("3", MANIFEST_FILE)] {
        let package = engine.publish(version, &files).await;
        let stored = engine.artifacts.get(&package.object(file)).await.unwrap();
        let mut changed = stored.unwrap().to_vec();
        *changed.last_mut().unwrap() ^= 1;
        engine.put(&package, file, &changed).await;
        let call = calls::predict(&package, &[]);
        let status = engine.infer(call).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{file}: {status}");
        assert!(status.message().contains(file), "{status}");
    }
    let invalid = [("outcome", "invalid")];
    let loads = sum(
        &engine.process,
        "assay_engine_package_loads_total",
        &invalid,
    )
    .await;
    assert_eq!(loads, 3.0);
    assert_eq!(
        sum(&engine.process, "assay_engine_packages", &[]).await,
        0.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_larger_than_the_memory_are_not_served() {
    let engine = Engine::start(&[("ASSAY_ENGINE_MEMORY", "1000000")]).await;
    let large = engine.publish("1", &packages::slow()).await;
    let status = engine.infer(calls::predict(&large, &[])).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("ASSAY_ENGINE_MEMORY"), "{status}");
    let small = engine.publish("2", &packages::golden("one-level")).await;
    engine.infer(calls::predict(&small, &[])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_tensors_are_invalid_arguments() {
    type Change = fn(&mut ModelInferRequest);
    let changes: [(&str, Change); 16] = [
        ("no inputs", |call| {
            call.inputs.clear();
            call.raw_input_contents.clear();
        }),
        ("overflowing shape", |call| {
            call.inputs[0].shape = vec![i64::MAX, i64::MAX];
        }),
        ("huge shape", |call| call.inputs[0].shape = vec![1, 1 << 40]),
        ("negative dimension", |call| {
            call.inputs[0].shape = vec![-1, 2];
        }),
        ("missing dimension", |call| call.inputs[0].shape = vec![2]),
        ("no rows", |call| call.inputs[0].shape = vec![0, 2]),
        ("wrong datatype", |call| {
            call.inputs[1].datatype = String::from("INT32");
        }),
        ("short raw contents", |call| {
            _ = call.raw_input_contents[1].split_off(7);
        }),
        ("length beyond the end", |call| {
            call.raw_input_contents[0] = vec![0xff, 0xff, 0xff, 0xff, b'a'].into();
        }),
        ("not UTF-8", |call| {
            call.raw_input_contents[0] = vec![2, 0, 0, 0, 0xc3, 0x28, 0, 0, 0, 0].into();
        }),
        ("length above the shape", |call| {
            call.raw_input_contents[1] = 3_i64.to_le_bytes().to_vec().into();
        }),
        ("negative length", |call| {
            call.raw_input_contents[1] = (-1_i64).to_le_bytes().to_vec().into();
        }),
        ("raw contents of one input", |call| {
            _ = call.raw_input_contents.pop();
        }),
        ("both forms", |call| {
            call.inputs[0].contents = Some(InferTensorContents {
                bytes_contents: vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")],
                ..InferTensorContents::default()
            });
        }),
        ("unknown input", |call| {
            call.inputs[1].name = String::from("length");
        }),
        ("unknown parameter", |call| {
            _ = call.parameters.insert(String::from("top_n"), 1.into());
        }),
    ];
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::golden("one-level")).await;
    let valid = calls::predict(&package, &["a", "b"]);
    for (what, change) in changes {
        let mut call = valid.clone();
        change(&mut call);
        let status = engine.infer(call).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
        engine.infer(valid.clone()).await.unwrap();
    }
    let invalid = sum(
        &engine.process,
        "assay_engine_calls_total",
        &[("outcome", "invalid")],
    );
    assert_eq!(invalid.await, 16.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_are_accepted_up_to_the_limit() {
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::golden("one-level")).await;
    let with_ids_of = |bytes: usize| {
        let history = History {
            events: vec!["x".repeat(bytes); 2_000],
            ..History::default()
        };
        let operation = Operation::Predict {
            is_strict: false,
            exclude_seen: false,
        };
        calls::request(&package, operation, &vec![&history; 64])
    };
    // 128,000 events of 64 bytes: 8 MiB.
    let response = engine.infer(with_ids_of(60)).await.unwrap();
    assert_eq!(response.outputs[0].shape, [64, 10]);
    let status = engine.infer(with_ids_of(140)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    engine.infer(calls::predict(&package, &[])).await.unwrap();
}
