//! Checks and their outcomes.

use std::fmt;

use serde::Serialize;

/// The largest accepted difference between two clocks, in seconds.
const CLOCK_MAX: f64 = 1.0;

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Ok,
    /// The installation works, but less well or less safely.
    Warn,
    Fail,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// One check, and what to do about its finding.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) area: &'static str,
    pub(super) check: &'static str,
    pub(super) outcome: Outcome,
    pub(super) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

/// The checks of one area.
pub(super) struct Area<'a> {
    pub(super) name: &'static str,
    pub(super) checks: &'a mut Vec<Check>,
}

impl Area<'_> {
    pub(super) fn add(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        problem: Option<(Outcome, String)>,
    ) {
        let (outcome, remedy) = problem.unzip();
        self.checks.push(Check {
            area: self.name,
            check,
            outcome: outcome.unwrap_or(Outcome::Ok),
            found: found.into(),
            remedy,
        });
    }

    /// Adds a check that fails unless `is_good`.
    pub(super) fn require(
        &mut self,
        check: &'static str,
        is_good: bool,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let problem = (!is_good).then(|| (Outcome::Fail, remedy.into()));
        self.add(check, found, problem);
    }

    /// Adds a check that warns unless `is_good`.
    pub(super) fn advise(
        &mut self,
        check: &'static str,
        is_good: bool,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let problem = (!is_good).then(|| (Outcome::Warn, remedy.into()));
        self.add(check, found, problem);
    }
}

/// Checks a clock, which is `ahead` seconds ahead of this process.
pub(super) fn check_clock(area: &mut Area<'_>, ahead: f64) {
    area.require(
        "clock",
        ahead.abs() <= CLOCK_MAX,
        format!("{ahead:+.3} s against this process"),
        "synchronize the clocks of all machines with NTP",
    );
}
