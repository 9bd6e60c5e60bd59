//! CITATION.cff, version 1.2.0.

use biblatex::{Entry, Person};

use crate::citation::cited;
use crate::report::{ExportError, ExportedFile, Report, suite_url};
use crate::text::{line, lines, yaml};

/// Returns the file `CITATION.cff` for a result: the suite with its version, the receipt as an identifier, and the
/// publisher's citation as the preferred one.
///
/// # Errors
/// If the job has no figures to export.
pub fn citation_cff(report: &Report<'_>) -> Result<ExportedFile, ExportError> {
    report.check()?;
    let receipt = report.receipt()?;
    let claim = &receipt.statement.predicate;
    let suite = report.suite;
    let mut content = format!(
        "cff-version: 1.2.0\nmessage: {}\ntype: dataset\ntitle: {}\nauthors:\n  - name: {}\nversion: {}\n",
        yaml("If you use this result, please cite the suite and its receipt."),
        yaml(&non_empty(&suite.title, &suite.suite_id)),
        yaml(&non_empty(&report.publisher(), "unknown")),
        yaml(&line(&claim.suite_version)),
    );
    // The time belongs to the current version.
    if suite.version == claim.suite_version
        && let Some(date) = date(&suite.published_at)
    {
        content.push_str(&format!("date-released: {}\n", yaml(date)));
    }
    content.push_str(&format!(
        "url: {}\n",
        yaml(&suite_url(report.base_url, suite))
    ));
    let description = lines(&suite.description);
    if !description.trim().is_empty() {
        content.push_str(&format!("abstract: {}\n", yaml(description.trim())));
    }
    if let Some(url) = suite.license.as_deref().and_then(license_url) {
        content.push_str(&format!("license-url: {}\n", yaml(&url)));
    }
    if !suite.tags.is_empty() {
        content.push_str("keywords:\n");
        for tag in &suite.tags {
            content.push_str(&format!("  - {}\n", yaml(&line(tag))));
        }
    }
    let description = format!(
        "Receipt of {} by {}: {}",
        report.model.name,
        report.model.developer,
        claim.summary()
    );
    content.push_str(&format!(
        "identifiers:\n  - type: url\n    value: {}\n    description: {}\n",
        yaml(&report.receipt_url(receipt)),
        yaml(&line(&description)),
    ));
    if let Some(citation) = suite.citation.as_deref().and_then(cited) {
        content.push_str(&preferred(&citation, &report.publisher()));
    }
    Ok(ExportedFile {
        path: "CITATION.cff".into(),
        content,
    })
}

/// Returns the publisher's citation as `preferred-citation`. The publisher is the author if it names none.
fn preferred(citation: &Entry, publisher: &str) -> String {
    let text = |field: &str| {
        let value = citation.get_as::<String>(field).ok()?;
        let value = line(&value).trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    let title = text("title").unwrap_or_else(|| citation.key.clone());
    let mut reference = format!(
        "preferred-citation:\n  type: generic\n  title: {}\n  authors:\n",
        yaml(&non_empty(&title, "untitled"))
    );
    let authors = citation.author().unwrap_or_default();
    let named: Vec<String> = authors.iter().filter_map(author).collect();
    match named.is_empty() {
        true => reference.push_str(&format!(
            "    - name: {}\n",
            yaml(&non_empty(publisher, "unknown"))
        )),
        false => reference.push_str(&named.concat()),
    }
    let year = text("year").or_else(|| text("date"));
    let year = year.as_deref().and_then(|year| year.get(..4));
    if let Some(year) = year.filter(|year| year.bytes().all(|byte| byte.is_ascii_digit())) {
        let year = year.trim_start_matches('0');
        if !year.is_empty() {
            reference.push_str(&format!("  year: {year}\n"));
        }
    }
    if let Some(doi) = text("doi").filter(|doi| is_doi(doi)) {
        reference.push_str(&format!("  doi: {}\n", yaml(&doi)));
    }
    if let Some(url) = text("url").filter(|url| is_plain_url(url)) {
        reference.push_str(&format!("  url: {}\n", yaml(&url)));
    }
    reference
}

/// Returns an author's lines. A name without a given name is an organization's, or a person's of one name.
fn author(person: &Person) -> Option<String> {
    let family = line(&person.name).trim().to_owned();
    if family.is_empty() {
        return None;
    }
    let given = line(&person.given_name).trim().to_owned();
    if given.is_empty() {
        return Some(format!("    - name: {}\n", yaml(&family)));
    }
    let mut author = format!(
        "    - family-names: {}\n      given-names: {}\n",
        yaml(&family),
        yaml(&given)
    );
    for (key, value) in [
        ("name-particle", &person.prefix),
        ("name-suffix", &person.suffix),
    ] {
        let value = line(value).trim().to_owned();
        if !value.is_empty() {
            author.push_str(&format!("      {key}: {}\n", yaml(&value)));
        }
    }
    Some(author)
}

/// Returns the address of a license's text: a URL itself, or the page for one SPDX license. An expression has none.
fn license_url(license: &str) -> Option<String> {
    if is_plain_url(license) {
        return Some(license.to_owned());
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let is_listed = license.bytes().all(is_name) && !license.starts_with("LicenseRef");
    (is_listed && !license.is_empty()).then(|| format!("https://spdx.org/licenses/{license}.html"))
}

/// Returns `true` for an address that the schema's format `uri` accepts.
fn is_plain_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://");
    rest.is_some_and(|rest| {
        let is_allowed =
            |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#@!$&'()*+,;=%".contains(&byte);
        rest.starts_with(|first: char| first.is_ascii_alphanumeric())
            && rest.bytes().all(is_allowed)
    })
}

/// Returns `true` for a DOI in the form that the schema requires.
fn is_doi(doi: &str) -> bool {
    let Some((registrant, suffix)) = doi
        .strip_prefix("10.")
        .and_then(|rest| rest.split_once('/'))
    else {
        return false;
    };
    let is_suffix = |byte: u8| byte.is_ascii_alphanumeric() || b":/_;-.()[]\\".contains(&byte);
    (4..=9).contains(&registrant.len())
        && registrant.bytes().all(|byte| byte.is_ascii_digit())
        && !suffix.is_empty()
        && suffix.bytes().all(is_suffix)
}

fn date(timestamp: &str) -> Option<&str> {
    let date = timestamp.get(..10)?;
    let is_date_byte = |byte: u8| byte.is_ascii_digit() || byte == b'-';
    date.bytes().all(is_date_byte).then_some(date)
}

/// Returns a text in one line, or another one if it is empty.
fn non_empty(text: &str, other: &str) -> String {
    let text = line(text).trim().to_owned();
    match text.is_empty() {
        true => other.to_owned(),
        false => text,
    }
}
