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
            name: "curl",
            code: format!(
                "curl {public_url}/v1/evals \\\n  -H \"Authorization: Bearer $ASSAY_API_KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d '{{\"suite_id\": \"{suite_id}\", \"predictions\": [{{\"item_id\": \"…\", \"prediction\": …}}]}}'"
            ),
        },
        Snippet {
            name: "Python",
            code: format!(
                "import json, os, urllib.request\n\nbody = {{\"suite_id\": \"{suite_id}\", \"predictions\": predictions}}\nrequest = urllib.request.Request(\n    \"{public_url}/v1/evals\",\n    data=json.dumps(body).encode(),\n    headers={{\n        \"Authorization\": f\"Bearer {{os.environ['ASSAY_API_KEY']}}\",\n        \"Content-Type\": \"application/json\",\n    }},\n)\njob = json.load(urllib.request.urlopen(request))"
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
