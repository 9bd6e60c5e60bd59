//! The code that pages show, filled in with the address, the suite, and a valid prediction for one item.

use assay_core::Result;
use assay_core::model::permissions::SuiteVisitor;
use assay_core::model::suite::Suite;
use assay_eval::{Family, Metric};
use serde_json::{Value, json};

use crate::app::App;
use crate::generated::inputs;
use crate::limits::request_memory::Reservation;
use crate::ops::suites;

/// Code in several languages, and the prediction form in it.
pub struct Snippets {
    /// A prediction's form, for people.
    pub form: &'static str,
    /// A prediction with that form, as JSON.
    pub example: String,
    /// The code in each language.
    pub all: Vec<Snippet>,
}

/// Code in one language.
pub struct Snippet {
    /// The language's or program's name.
    pub name: &'static str,
    /// The code.
    pub code: String,
}

/// Returns the ways to submit predictions to a suite. Reads its first item.
pub async fn submit(
    app: &App,
    reader: &SuiteVisitor,
    suite: &Suite,
    room: &Reservation,
) -> Result<Snippets> {
    let suite_id = suite.suite_id.as_str();
    let first = inputs::ListSuiteItems {
        cursor: None,
        limit: Some(1),
    };
    let page = suites::items(app, reader, suite_id, first, room).await?;
    let (item_id, input) = match page.items.into_iter().next() {
        Some(item) => (item.item_id, item.input.get().to_owned()),
        None => return Err(assay_core::Error::internal("the suite has no items")),
    };
    let metric: Metric = suite.metric.parse().map_err(assay_core::Error::internal)?;
    Ok(filled(
        &app.settings.public_url,
        suite_id,
        (metric, &suite.quantiles),
        &item_id,
        &input,
    ))
}

/// Fills the code in. The metric comes with the levels of quantiles. `input` is the item input's JSON.
fn filled(
    public_url: &str,
    suite_id: &str,
    (metric, quantiles): (Metric, &[f64]),
    item_id: &str,
    input: &str,
) -> Snippets {
    let label = first_option(input).unwrap_or_else(|| "yes".to_owned());
    let (form, prediction, grpc_prediction) = match metric.family() {
        Family::Rankings => (
            "a ranking: an array of ids, the best first",
            json!([label]),
            json!({"ranking": {"ids": [label]}}),
        ),
        Family::Labels => ("a label: a string", json!(label), json!({"label": label})),
        Family::Numbers => ("a number", json!(0), json!({"number": 0})),
        Family::Probabilities => (
            "an object of label → probability, with the sum 1",
            json!({&label: 1}),
            json!({"probabilities": {"by_label": {&label: 1}}}),
        ),
        Family::Quantiles => {
            let by_level = quantiles.iter().map(|level| (level.to_string(), json!(0)));
            let by_level = Value::Object(by_level.collect());
            (
                "an object of level → number",
                by_level.clone(),
                json!({"quantiles": {"by_level": by_level}}),
            )
        }
    };
    let body = |prediction: &Value| {
        let predictions = [json!({"item_id": item_id, "prediction": prediction})];
        quoted(&json!({"suite_id": suite_id, "predictions": predictions}).to_string())
    };
    let (tls, host) = match public_url.split_once("://") {
        Some(("https", host)) => ("", host),
        Some((_, host)) => ("-plaintext ", host),
        None => ("", public_url),
    };
    let line = quoted(&json!({"item_id": item_id, "prediction": prediction}).to_string());
    // The JSON literals that occur here are Python's. Equal numbers have no correlation.
    let returned = match metric {
        Metric::Spearman | Metric::Pearson | Metric::Kendall => String::from("len(str(question))"),
        _ => prediction.to_string(),
    };
    let python = Snippet {
        name: "Python",
        code: format!(
            "import assay_client as assay  # pip install assay-client\n\ndef predict(question):  # receives the input of one item\n    return {returned}\n\nprint(assay.evaluate(\"{suite_id}\", predict))"
        ),
    };
    let mut all = vec![python];
    // One prediction is no submission to a suite whose metric needs all items' predictions.
    if metric.needs_all_predictions() {
        all.push(Snippet {
            name: "Command line",
            code: format!("assay items {suite_id} | ./model | assay submit {suite_id} - --wait"),
        });
    } else {
        all.push(Snippet {
            name: "Command line",
            code: format!("printf '%s\\n' {line} |\n  assay submit {suite_id} - --wait"),
        });
        all.push(Snippet {
            name: "curl",
            code: format!(
                "curl {public_url}/v1/evals \\\n  -H \"Authorization: Bearer $ASSAY_API_KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d {}",
                body(&prediction)
            ),
        });
        all.push(Snippet {
            name: "grpcurl",
            code: format!(
                "grpcurl {tls}-H \"Authorization: Bearer $ASSAY_API_KEY\" \\\n  -d {} \\\n  {host} assay.v1.EvalService/CreateEval",
                body(&grpc_prediction)
            ),
        });
    }
    Snippets {
        form,
        example: prediction.to_string(),
        all,
    }
}

/// Returns the first entry in the `options` that an input offers.
fn first_option(input: &str) -> Option<String> {
    let input: Value = serde_json::from_str(input).ok()?;
    let option = input.get("options")?.get(0)?.as_str()?;
    Some(option.to_owned())
}

/// Returns a text as one POSIX shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
