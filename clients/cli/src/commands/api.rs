//! Any request to the API.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};

use serde_json::{Map, Value};

use super::context::Context;
use super::listing::next_page;
use crate::arguments::Call;
use crate::client::Request;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Format, closed, visible_lines};
use crate::predictions::STDIN;

/// `assay api`
pub fn send(context: &Context, call: &Call) -> Result<()> {
    let method = match call.method.to_ascii_uppercase().as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        other => {
            return Err(Failure::new(
                Exit::Usage,
                format!("{other} is not a method of the API"),
            ));
        }
    };
    if !call.path.starts_with('/') {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "the path must begin with a slash, as in /v1/me, not {:?}",
                call.path
            ),
        ));
    }
    let client = context.client()?;
    let body = match &call.input {
        Some(file) => {
            let mut body = Vec::new();
            let read = if file == STDIN {
                io::stdin().read_to_end(&mut body)
            } else {
                File::open(file).and_then(|mut file| file.read_to_end(&mut body))
            };
            read.map_err(|error| Failure::io(file, &error))?;
            Some(body)
        }
        None if method == "GET" || call.fields.is_empty() => None,
        None => {
            let fields = call.fields.iter();
            let fields: Map<String, Value> = fields
                .map(|(name, text)| (name.clone(), converted(text)))
                .collect();
            Some(Value::Object(fields).to_string().into_bytes())
        }
    };
    let request = |next: Option<&(&str, String)>| -> Request<'_> {
        let mut request = client.raw_request(method, &call.path);
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        if method == "GET" {
            // A later page's position replaces the first one's.
            let own = call.fields.iter();
            let own = own.filter(|(name, _)| next.is_none_or(|(token, _)| token != name));
            for (name, value) in own {
                request = request.query(name, value);
            }
            if let Some((name, position)) = next {
                request = request.query(name, position);
            }
        }
        match &body {
            Some(body) => request.json_bytes(body.clone()),
            None => request,
        }
    };
    if !call.paginate {
        return write_body(context, &request(None).send()?.body);
    }
    let mut next = None;
    loop {
        let response = request(next.as_ref()).send()?;
        let page = response.json()?;
        // An event page always has a cursor; the last one is empty.
        let is_empty = page["events"].as_array().is_some_and(Vec::is_empty);
        if next.is_some() && is_empty {
            return Ok(());
        }
        write_body(context, &response.body)?;
        next = next_page(&page);
        if next.is_none() {
            return Ok(());
        }
    }
}

/// Writes a body: as it is, or indented with `-f json` and on a terminal.
fn write_body(context: &Context, body: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    if body.is_empty() {
        return Ok(());
    }
    let is_indented = matches!(context.output.format(), Format::Table | Format::Json);
    let indented = serde_json::from_slice::<Value>(body)
        .ok()
        .filter(|_| is_indented)
        .and_then(|value| serde_json::to_vec_pretty(&value).ok());
    let bytes = indented.as_deref().unwrap_or(body);
    if io::stdout().is_terminal() {
        let text = String::from_utf8_lossy(bytes);
        return writeln!(out, "{}", visible_lines(text.trim_end())).map_err(closed);
    }
    out.write_all(bytes)
        .and_then(|()| out.write_all(b"\n"))
        .map_err(closed)
}

/// Converts a field's text: `true`, `false`, `null` and numbers are JSON values, the rest is
/// a string.
fn converted(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Null | Value::Number(_))) => value,
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_converted_unless_they_are_strings() {
        for (text, expected) in [
            ("true", json!(true)),
            ("null", json!(null)),
            ("-1.5", json!(-1.5)),
            ("12", json!(12)),
            ("[1]", json!("[1]")),
            ("\"a\"", json!("\"a\"")),
            ("suite:lunch", json!("suite:lunch")),
            ("", json!("")),
        ] {
            assert_eq!(converted(text), expected, "{text}");
        }
    }
}
