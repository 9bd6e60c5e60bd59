//! The code that pages show, filled in with the address and the suite.

use assay_core::model::suite::Suite;

/// Code in one language.
pub struct Snippet {
    /// The name of the language or program.
    pub name: &'static str,
    /// The code.
    pub code: String,
}

/// Returns the ways to submit predictions to a suite.
pub fn submit(public_url: &str, suite: &Suite) -> Vec<Snippet> {
    let suite_id = suite.suite_id.as_str();
    let (tls, host) = match public_url.split_once("://") {
        Some(("https", host)) => ("", host),
        Some((_, host)) => ("-plaintext ", host),
        None => ("", public_url),
    };
    vec![
        Snippet {
            name: "Python",
            code: format!(
                "import assay  # pip install assay-client\n\ndef predict(question):  # receives the input of one item\n    return …\n\nprint(assay.evaluate(\"{suite_id}\", predict))"
            ),
        },
        Snippet {
            name: "Command line",
            code: format!("assay items {suite_id} | ./model | assay submit {suite_id} - --wait"),
        },
        Snippet {
            name: "curl",
            code: format!(
                "curl {public_url}/v1/evals \\\n  -H \"Authorization: Bearer $ASSAY_API_KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d '{{\"suite_id\": \"{suite_id}\", \"predictions\": [{{\"item_id\": \"…\", \"prediction\": …}}]}}'"
            ),
        },
        Snippet {
            name: "grpcurl",
            code: format!(
                "grpcurl {tls}-H \"Authorization: Bearer $ASSAY_API_KEY\" \\\n  -d '{{\"suite_id\": \"{suite_id}\", \"predictions\": [{{\"item_id\": \"…\", \"prediction\": …}}]}}' \\\n  {host} assay.v1.EvalService/CreateEval"
            ),
        },
    ]
}
