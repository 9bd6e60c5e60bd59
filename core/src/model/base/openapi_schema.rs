//! OpenAPI schemas for strings: ids, timestamps, and words in closed sets. Structs derive their
//! schemas (`utoipa::ToSchema`), and the API assembles the document.

use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};

/// Returns the schema for a string with a pattern.
pub fn text(description: &str, pattern: &str, max: usize, example: &str) -> RefOr<Schema> {
    string()
        .description(Some(description))
        .pattern(Some(pattern))
        .max_length(Some(max))
        .examples([example])
        .into()
}

/// Returns the schema for an id: its prefix, then letters and digits.
pub fn id(prefix: &str) -> RefOr<Schema> {
    let pattern = format!("^{prefix}[0-9A-Za-z]{{1,40}}$");
    let example = format!("{prefix}5gGkwnuU0Kqhcfk8Wsnx3Z");
    text(
        &format!("`{prefix}` and 22 letters or digits."),
        &pattern,
        prefix.len() + 40,
        &example,
    )
}

/// Returns the schema for a word in a closed set, with each word's meaning.
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

/// Returns the schema for a string with a named format.
pub fn format(format: KnownFormat, description: &str, max: usize, example: &str) -> RefOr<Schema> {
    let schema = string()
        .description(Some(description))
        .format(Some(SchemaFormat::KnownFormat(format)));
    schema.max_length(Some(max)).examples([example]).into()
}

/// Returns a timestamp's schema.
pub fn timestamp() -> RefOr<Schema> {
    let schema = string().description(Some("A timestamp in RFC 3339, in UTC with microseconds."));
    schema
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .examples(["2026-01-31T23:59:59.000000Z"])
        .into()
}

/// Returns a day's schema.
pub fn date() -> RefOr<Schema> {
    let schema = string().description(Some("A day in UTC, as in RFC 3339."));
    schema
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Date)))
        .examples(["2026-01-31"])
        .into()
}

fn string() -> ObjectBuilder {
    Object::builder().schema_type(Type::String)
}
