//! Golden requests of packages that a test or benchmark makes.

use assay_engine::{Event, Model, PredictOptions, Refusal, Scratch, Sequence};
use serde_json::{Value, json};

/// Ranks the catalog for a history, as a request without options does. Returns ten items with their
/// scores.
///
/// # Errors
/// If the model cannot rank the history.
pub fn ranking(model: &Model, item_ids: &[String]) -> Result<Vec<(String, f32)>, Refusal> {
    let event = |item_id| Event {
        item_id,
        event_type: None,
    };
    let events: Vec<_> = item_ids.iter().map(|item_id| event(item_id)).collect();
    let sequence = Sequence {
        events: &events,
        ..Sequence::default()
    };
    let options = PredictOptions {
        top_k: Some(10),
        exclude_seen: false,
    };
    let ranking = model.predict(&mut Scratch::default(), &sequence, &options, &|| false)?;
    let items = ranking.items.into_iter();
    Ok(items
        .filter_map(|item| Some((item.item_id.to_owned(), item.score?)))
        .collect())
}

/// Returns `golden.json`: requests for a history, its first half and an empty one, which the model
/// itself computes.
///
/// # Errors
/// If the model cannot rank a history.
pub fn golden_json(model: &Model, item_ids: &[String]) -> Result<Vec<u8>, Refusal> {
    let lengths = [item_ids.len(), item_ids.len() / 2, 0];
    let requests = lengths.map(|length| request(model, &item_ids[..length]));
    let requests = requests.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "requests": requests }).to_string().into_bytes())
}

fn request(model: &Model, item_ids: &[String]) -> Result<Value, Refusal> {
    let events: Vec<_> = item_ids
        .iter()
        .map(|item_id| json!({"item_id": item_id}))
        .collect();
    let (prediction, scores): (Vec<_>, Vec<_>) = ranking(model, item_ids)?.into_iter().unzip();
    let result = json!({
        "sequence_id": "golden", "prediction": prediction, "scores": scores, "n_events": item_ids.len(),
        "n_used": item_ids.len(), "n_unknown": 0, "cold": item_ids.is_empty(),
    });
    Ok(json!({
        "operation": "predict",
        "request": {"sequences": [{"sequence_id": "golden", "events": events}]},
        "response": {"data": [result]},
    }))
}
