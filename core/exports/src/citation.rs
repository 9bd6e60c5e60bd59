//! BibTeX entries for suites and results.

use biblatex::{Bibliography, Entry};

use crate::report::{ExportError, ExportedFile, Report, publisher, suite_url};
use crate::resources::Suite;
use crate::text::{latex, line, lines, segment};

/// Returns the BibTeX entries to cite: one for the result with the suite's version and the receipt, then the suite's
/// citation, or a generated entry if the publisher gives no BibTeX.
///
/// # Errors
/// If the job has no figures to export.
pub fn bibtex(report: &Report<'_>) -> Result<ExportedFile, ExportError> {
    report.check()?;
    let receipt = report.receipt()?;
    let claim = &receipt.statement.predicate;
    let result = entry(
        &report.job.id,
        &[
            (
                "title",
                format!(
                    "{{{} on {}}}",
                    latex(&report.model.name),
                    latex(&report.suite.title)
                ),
            ),
            ("author", format!("{{{}}}", latex(&report.model.developer))),
            ("year", year(&claim.finished_at)),
            ("version", latex(&claim.suite_version)),
            ("url", report.receipt_url(receipt)),
            (
                "note",
                latex(&format!("{}; receipt {}", claim.summary(), receipt.id)),
            ),
        ],
    );
    Ok(ExportedFile {
        path: format!("assay-{}.bib", report.job.id),
        content: format!(
            "{result}\n{}",
            suite_bibtex(report.base_url, report.suite, &claim.suite_version)
        ),
    })
}

/// Returns the publisher's citation, or a generated entry if it is no BibTeX.
pub fn suite_bibtex(base_url: &str, suite: &Suite, version: &str) -> String {
    if let Some(citation) = &suite.citation
        && cited(citation).is_some()
    {
        return format!("{}\n", lines(citation).trim());
    }
    let publisher = publisher(base_url, suite);
    let mut fields = vec![
        ("title", format!("{{{}}}", latex(&suite.title))),
        ("author", format!("{{{}}}", latex(&publisher))),
    ];
    // The time belongs to the current version.
    if suite.version == version {
        fields.push(("year", year(&suite.published_at)));
    }
    fields.push(("version", latex(version)));
    fields.push(("url", suite_url(base_url, suite)));
    let name = suite.suite_id.strip_prefix("suite:");
    let name = name.unwrap_or(&suite.suite_id);
    entry(&format!("{name}-{version}"), &fields)
}

/// Returns a BibTeX text's first entry. `None` if it is not BibTeX, or has no title.
pub(crate) fn cited(citation: &str) -> Option<Entry> {
    let entries = Bibliography::parse(&lines(citation)).ok()?.into_vec();
    let first = entries.into_iter().next()?;
    first.title().ok()?;
    Some(first)
}

/// Returns an entry. The values are BibTeX.
fn entry(key: &str, fields: &[(&str, String)]) -> String {
    let is_kept = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let key: String = line(key)
        .chars()
        .map(|character| if is_kept(character) { character } else { '-' })
        .collect();
    let mut entry = format!("@misc{{{key},\n");
    for (name, value) in fields {
        entry.push_str(&format!("  {name} = {{{value}}},\n"));
    }
    entry.push_str("}\n");
    entry
}

/// Returns a timestamp's year.
pub(crate) fn year(timestamp: &str) -> String {
    let year = timestamp.get(..4).unwrap_or_default();
    segment(year)
}
