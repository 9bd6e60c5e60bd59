//! Measures the engine's CPU time for `tests/peers/engine.py`: reads a package and
//! `histories.json` from a folder, computes each history repeatedly, and prints the milliseconds per
//! sequence as JSON, with the first history's result.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use assay_engine::{Event, Model, PackageFiles, PredictOptions, Refusal, Scratch, Sequence};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, operation, rounds] = &arguments[..] else {
        return Err("usage: measure FOLDER logits|predict ROUNDS".into());
    };
    let read = |name: &str| fs::read(Path::new(folder).join(name));
    let model = Model::load(&PackageFiles {
        model: &read("model.json")?,
        weights: &read("weights.safetensors")?,
        items: Some(&read("items.ndjson")?),
    })?;
    let histories: Vec<Vec<String>> = serde_json::from_slice(&read("histories.json")?)?;
    let histories: Vec<Vec<Event<'_>>> = histories.iter().map(|ids| events(ids)).collect();
    let first = histories.first().ok_or("histories.json is empty")?;
    let rounds = rounds.parse()?;
    let (milliseconds, result) = match operation.as_str() {
        "logits" => {
            let found = logits(&model, &mut Scratch::default(), first)?;
            (
                measure(&model, &histories, rounds, logits)?,
                Value::from(found),
            )
        }
        "predict" => {
            let found = predict(&model, &mut Scratch::default(), first)?;
            (
                measure(&model, &histories, rounds, predict)?,
                Value::from(found),
            )
        }
        other => return Err(format!("unknown operation {other}").into()),
    };
    println!("{}", json!({"ms": milliseconds, "first": result}));
    Ok(())
}

fn events(item_ids: &[String]) -> Vec<Event<'_>> {
    let event = |item_id| Event {
        item_id,
        event_type: None,
    };
    item_ids.iter().map(|item_id| event(item_id)).collect()
}

/// Returns the CPU milliseconds per history in each round.
fn measure<'m, R>(
    model: &'m Model,
    histories: &'m [Vec<Event<'m>>],
    rounds: usize,
    operation: fn(&'m Model, &mut Scratch, &'m [Event<'m>]) -> Result<R, Refusal>,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut scratch = Scratch::default();
    let mut milliseconds = Vec::new();
    for _ in 0..rounds {
        let start = cpu_time()?;
        for events in histories {
            black_box(operation(model, &mut scratch, events)?);
        }
        let spent = cpu_time()? - start;
        milliseconds.push(spent.as_secs_f64() * 1000.0 / histories.len() as f64);
    }
    Ok(milliseconds)
}

fn cpu_time() -> Result<Duration, nix::Error> {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from)
}

/// Encodes a sequence and computes the first level's scores.
fn logits(model: &Model, scratch: &mut Scratch, events: &[Event<'_>]) -> Result<Vec<f32>, Refusal> {
    let sequence = Sequence {
        events,
        ..Sequence::default()
    };
    Ok(model.logits(scratch, &sequence, &|| false)?.values)
}

/// Finds the ten best items.
fn predict<'m>(
    model: &'m Model,
    scratch: &mut Scratch,
    events: &'m [Event<'m>],
) -> Result<Vec<&'m str>, Refusal> {
    let sequence = Sequence {
        events,
        ..Sequence::default()
    };
    let options = PredictOptions::default();
    let found = model.predict(scratch, &sequence, &options, &|| false)?;
    Ok(found.items.iter().map(|item| item.item_id).collect())
}
