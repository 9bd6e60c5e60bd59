//! The `/v1/models` endpoints: the catalog and the model cards.

use assay_proto::v1;
use assay_proto::v1::model_service_client::ModelServiceClient;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};

use crate::harness::{Expect, World, with_token, world_with};

/// Returns a valid model file with this id and version.
pub fn file() -> Value {
    json!({
        "id": "next-1", "task": "next-event", "status": "beta", "version": "1", "context_length": 512, "requires_tokenizer": true,
        "endpoints": ["generate", "predict", "embed"], "embedding_dim": 256,
        "codebook": {"levels": 3, "resolution": "multi", "base_size": 256}, "pretrain_domains": ["retail", "media"],
    })
}

/// Publishes a model with the operator's command.
pub async fn publish(world: &World, file: &Value) -> Result<Value, String> {
    let path = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-model.json", world.stack.database.name));
    std::fs::write(&path, file.to_string()).unwrap();
    world
        .stack
        .operate(&["model", "publish", path.to_str().unwrap()])
        .await
        .map_err(|trouble| trouble.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn published_model_has_card_on_both_protocols() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    assert_eq!(
        world.key().get("/v1/models").await.unwrap().body,
        json!({"models": []})
    );
    assert_eq!(publish(&world, &file()).await.unwrap()["published"], true);
    let listed = world.key().get("/v1/models").await.unwrap().body;
    let entry = json!({"id": "next-1", "task": "next-event", "status": "beta", "context_length": 512, "requires_tokenizer": true, "endpoints": ["generate", "predict", "embed"]});
    assert_eq!(listed, json!({"models": [entry]}));
    let card = world.owner().get("/v1/models/next-1").await.unwrap().body;
    let expected = json!({
        "id": "next-1", "task": "next-event", "status": "beta", "version": "1", "context_length": 512, "embedding_dim": 256,
        "codebook": {"levels": 3, "resolution": "multi", "base_size": 256}, "adapted": false, "adapted_at": null, "pretrain_domains": ["retail", "media"],
    });
    assert_eq!(card, expected);
    for unknown in ["next-2", "%00", "a%20b"] {
        let response = world
            .key()
            .get(&format!("/v1/models/{unknown}"))
            .await
            .expect_error(404, "not_found");
        assert_eq!(response.body["error"]["message"], "No such model.");
    }
    let mut grpc = ModelServiceClient::new(world.channel().await);
    let model = grpc
        .list_models(with_token(v1::ListModelsRequest {}, &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .models
        .remove(0);
    let same = json!({"id": model.id, "task": model.task, "status": model.status, "context_length": model.context_length, "requires_tokenizer": model.requires_tokenizer, "endpoints": model.endpoints});
    assert_eq!(entry, same);
    let ask = v1::GetModelRequest {
        model_id: "next-1".into(),
    };
    let c = grpc
        .get_model(with_token(ask, &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .model
        .unwrap();
    let b = c.codebook.unwrap();
    let same = json!({
        "id": c.id, "task": c.task, "status": c.status, "version": c.version, "context_length": c.context_length, "embedding_dim": c.embedding_dim,
        "codebook": {"levels": b.levels, "resolution": b.resolution, "base_size": b.base_size}, "adapted": c.adapted, "adapted_at": null, "pretrain_domains": c.pretrain_domains,
    });
    assert_eq!((expected, None), (same, c.adapted_at));
}

#[tokio::test(flavor = "multi_thread")]
async fn model_version_is_immutable() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    publish(&world, &file()).await.unwrap();
    assert_eq!(
        publish(&world, &file()).await.unwrap()["published"],
        false,
        "publishing the same file again changes nothing"
    );
    let mut other = file();
    other["status"] = "stable".into();
    assert!(
        publish(&world, &other)
            .await
            .unwrap_err()
            .contains("a published version never changes")
    );
    other["version"] = "2".into();
    publish(&world, &other).await.unwrap();
    let card = world.key().get("/v1/models/next-1").await.unwrap().body;
    assert_eq!(
        (&card["version"], &card["status"]),
        (&"2".into(), &"stable".into())
    );
    assert_eq!(
        world.key().get("/v1/models").await.unwrap().body["models"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let mut bad = file();
    (bad["id"], bad["context_length"]) = ("a b".into(), 0.into());
    let error = publish(&world, &bad).await.unwrap_err();
    assert!(
        error.contains("id: must be 1 to 64")
            && error.contains("context_length: must be at least 1"),
        "{error}"
    );
    bad["extra"] = 1.into();
    assert!(
        publish(&world, &bad)
            .await
            .unwrap_err()
            .contains("unknown field `extra`")
    );
}
