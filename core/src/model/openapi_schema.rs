//! How what is one word on the wire is described to clients: ids, moments, and words of closed sets. Structs derive
//! their description (`utoipa::ToSchema`); the api makes the whole document.

use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};

/// A text of this form.
pub fn text(description: &str, pattern: &str, max: usize, example: &str) -> RefOr<Schema> {
    string()
        .description(Some(description))
        .pattern(Some(pattern))
        .max_length(Some(max))
        .examples([example])
        .into()
}

/// An id: its prefix, and letters and digits.
pub fn id(prefix: &str) -> RefOr<Schema> {
    let (pattern, example) = (
        format!("^{prefix}[0-9A-Za-z]{{1,40}}$"),
        format!("{prefix}5gGkwnuU0Kqhcfk8Wsnx3Z"),
    );
    text(
        &format!("`{prefix}` and 22 letters or digits."),
        &pattern,
        prefix.len() + 40,
        &example,
    )
}

/// One word of a closed set, each with what it means.
pub fn word(meanings: &[(&'static str, &str)]) -> RefOr<Schema> {
    let lines: Vec<_> = meanings
        .iter()
        .map(|(word, meaning)| format!("- `{word}`: {}", meaning.trim()))
        .collect();
    string()
        .enum_values(Some(meanings.iter().map(|(word, _)| *word)))
        .description(Some(lines.join("\n")))
        .into()
}

/// A text of a form that has a name.
pub fn format(format: KnownFormat, description: &str, max: usize, example: &str) -> RefOr<Schema> {
    let described = string()
        .description(Some(description))
        .format(Some(SchemaFormat::KnownFormat(format)));
    described.max_length(Some(max)).examples([example]).into()
}

/// A moment.
pub fn moment() -> RefOr<Schema> {
    let described = string().description(Some("A moment in RFC 3339, in UTC with microseconds."));
    described
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .examples(["2026-01-31T23:59:59.000000Z"])
        .into()
}

fn string() -> ObjectBuilder {
    Object::builder().schema_type(Type::String)
}
