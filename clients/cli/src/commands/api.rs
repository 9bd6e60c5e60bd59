//! Any request to the API.

use std::io::{self, Write as _};

use serde_json::{Map, Value};

use super::context::Context;
use crate::client::Request;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Format, closed};
use crate::predictions;

/// A request.
pub struct Call {
    pub method: String,
    pub path: String,
    pub fields: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub input: Option<String>,
    /// Set to read all pages.
    pub has_pages: bool,
}

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
            let (mut bytes, _) = predictions::open(file)?;
            let mut body = Vec::new();
            io::Read::read_to_end(&mut bytes, &mut body)
                .map_err(|error| Failure::io(file, &error))?;
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
    let request = || -> Request<'_> {
        let mut request = client.raw_request(method, &call.path);
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        if method == "GET" {
            for (name, value) in &call.fields {
                request = request.query(name, value);
            }
        }
        match &body {
            Some(body) => request.json_bytes(body.clone()),
            None => request,
        }
    };
    if !call.has_pages {
        return write_body(context, &request().send()?.body);
    }
    let mut next: Option<(String, String)> = None;
    loop {
        let page = match &next {
            Some((token, position)) => request().query(token, position).send()?,
            None => request().send()?,
        };
        write_body(context, &page.body)?;
        let page = page.json()?;
        let token = |name: &str| {
            let position = page[format!("next_{name}")].as_str()?;
            Some((name.to_owned(), position.to_owned()))
        };
        let following = token("cursor").or_else(|| token("before"));
        // The cursor of the last page of events is its own.
        if following.is_none() || following == next {
            return Ok(());
        }
        next = following;
    }
}

/// Writes a body: as it is, or indented with `-f json` and on a terminal.
fn write_body(context: &Context, body: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    if body.is_empty() {
        return Ok(());
    }
    let is_indented = context.output.is_table() || context.global.format == Some(Format::Json);
    let indented = serde_json::from_slice::<Value>(body)
        .ok()
        .filter(|_| is_indented)
        .and_then(|value| serde_json::to_vec_pretty(&value).ok());
    out.write_all(indented.as_deref().unwrap_or(body))
        .and_then(|()| out.write_all(b"\n"))
        .map_err(closed)
}

/// Converts the text of a field: `true`, `false`, `null` and numbers are values of JSON, the rest is
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
