//! A job's disclosed figures, from which its exports are made.

use assay_eval::Metric;

use crate::resources::{Claim, Entry, Job, Receipt, Suite};
use crate::text::{figure, line, segment};

/// The reason why a job cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The job has no result.
    #[error("the job has no result to export: only a succeeded eval has one")]
    NoResult,
    /// There is no receipt.
    #[error("the job has no receipt, without which its figures cannot be verified")]
    NoReceipt,
    /// A receipt, a suite or an entry belongs to another job.
    #[error("the {0} does not belong to the job")]
    OtherJob(&'static str),
    /// A newer program is needed.
    #[error("this program does not know the metric {0}; use a newer version of the program")]
    UnknownMetric(String),
    /// A name has no character that a file name may have.
    #[error("the name of the {0} needs at least one letter or digit")]
    NoName(&'static str),
    /// The address is no URL.
    #[error("the address of the installation must begin with https:// or http://")]
    BaseUrl,
}

/// An export's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// The path below the folder that the user names, with `/`.
    pub path: String,
    /// The content.
    pub content: String,
}

/// The evaluated model's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// The developer: a person or an organization.
    pub developer: String,
    /// The model.
    pub name: String,
}

impl ModelName {
    /// Returns the name that a job's resources give: the entry's, the model's, the label, or else the job's
    /// id.
    pub fn of(developer: &str, job: &Job, entry: Option<&Entry>) -> Self {
        let model_id = job.versions.model_id.as_deref();
        let model_id = model_id.map(|id| id.strip_prefix("model:").unwrap_or(id));
        let name = entry
            .map(|entry| entry.name.as_str())
            .or(model_id)
            .or(job.label.as_deref())
            .filter(|name| !line(name).trim().is_empty());
        Self {
            developer: line(developer),
            name: line(name.unwrap_or(&job.id)),
        }
    }
}

/// A job with the resources that its exports need.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// The installation's address, without a slash at the end.
    pub base_url: &'a str,
    /// The job.
    pub job: &'a Job,
    /// The suite.
    pub suite: &'a Suite,
    /// The job's receipts. The last one states the figure that counts: sealed figures and a board's figures follow
    /// the open ones.
    pub receipts: &'a [Receipt],
    /// The evaluated model.
    pub model: ModelName,
}

impl Report<'_> {
    /// Checks that the resources belong together, and that there is a figure to export.
    ///
    /// # Errors
    /// The first [`ExportError`] that applies.
    pub fn check(&self) -> Result<(), ExportError> {
        if self.job.result.is_none() {
            return Err(ExportError::NoResult);
        }
        if !is_web_url(self.base_url) {
            return Err(ExportError::BaseUrl);
        }
        for receipt in self.receipts {
            if receipt.job_id != self.job.id {
                return Err(ExportError::OtherJob("receipt"));
            }
            if receipt.statement.predicate.suite_id != self.suite.suite_id {
                return Err(ExportError::OtherJob("suite"));
            }
        }
        self.receipt().map(|_| ())
    }

    /// Returns the receipt that states the figure that counts.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn receipt(&self) -> Result<&Receipt, ExportError> {
        self.receipts.last().ok_or(ExportError::NoReceipt)
    }

    /// Returns `true` if the suite's publisher, or an organization that shares its allowance, made the submission.
    pub(crate) fn is_by_publisher(&self) -> bool {
        let result = self.job.result.as_ref();
        result.is_some_and(|result| result.by_publisher)
    }

    /// Returns the suite publisher's name: the installation's host name if the operator published it.
    pub(crate) fn publisher(&self) -> String {
        publisher(self.base_url, self.suite)
    }

    /// Returns a receipt's page.
    pub(crate) fn receipt_url(&self, receipt: &Receipt) -> String {
        receipt_url(self.base_url, receipt)
    }
}

/// Returns a receipt's page.
pub(crate) fn receipt_url(base_url: &str, receipt: &Receipt) -> String {
    format!("{base_url}/receipts/{}", segment(&receipt.id))
}

/// Returns a suite's page.
pub(crate) fn suite_url(base_url: &str, suite: &Suite) -> String {
    format!("{base_url}/suites/{}", segment(&suite.suite_id))
}

/// Returns a suite publisher's name: the installation's host name if the operator published it.
pub(crate) fn publisher(base_url: &str, suite: &Suite) -> String {
    match &suite.owner {
        Some(owner) => line(&owner.name),
        None => host(base_url).to_owned(),
    }
}

/// Returns a suite publisher's address: a verified domain, or the installation if the operator published it.
pub(crate) fn publisher_url(base_url: &str, suite: &Suite) -> Option<String> {
    match &suite.owner {
        Some(owner) => {
            let domain = owner.domain.as_deref()?;
            Some(format!("https://{}", segment(domain)))
        }
        None => Some(base_url.to_owned()),
    }
}

fn is_web_url(url: &str) -> bool {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let is_graphic = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        !rest.is_empty() && rest.bytes().all(is_graphic)
    })
}

/// Returns a URL's host name.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

impl Claim {
    /// Returns the metric.
    ///
    /// # Errors
    /// If this program does not know it.
    pub(crate) fn known_metric(&self) -> Result<Metric, ExportError> {
        let unknown = || ExportError::UnknownMetric(line(&self.metric));
        self.metric.parse().map_err(|_| unknown())
    }

    /// Returns the interval in words. `None` if it is not disclosed.
    pub(crate) fn interval(&self) -> Option<String> {
        let [low, high] = self.ci95?;
        Some(format!("95 % interval {} to {}", figure(low), figure(high)))
    }

    /// Returns the figure in one line, with its interval and the item count.
    pub(crate) fn summary(&self) -> String {
        let interval = self
            .interval()
            .map_or_else(String::new, |interval| format!(", {interval}"));
        let items = match self.figures.as_str() {
            "open" => " open",
            "sealed" => " sealed",
            _ => "",
        };
        format!(
            "{} {}{interval}, {}{items} items",
            line(&self.metric),
            figure(self.value),
            self.n
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_has_no_port() {
        for (url, expected) in [
            ("https://assay.example", "assay.example"),
            ("http://localhost:8080/x", "localhost"),
            ("http://[::1]", "[::1]"),
            ("http://[::1]:80", "[::1]"),
        ] {
            assert_eq!(host(url), expected);
        }
    }
}
