//! A command's failure: its exit code, and its message's four parts.

use std::fmt;
use std::io;

use serde_json::Value;

/// The program's exit codes. `assay help exit-codes` prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The output's reader has closed it. This is no failure.
    OutputClosed = 0,
    /// Another error.
    Other = 1,
    /// The arguments are not valid.
    Usage = 2,
    /// The credential is missing, not valid or not sufficient.
    Credential = 3,
    /// There is no such resource.
    NotFound = 4,
    /// The resource's state does not allow the action.
    Conflict = 5,
    /// The input is not valid.
    InvalidInput = 6,
    /// A plan, suite or request limit is reached.
    Limit = 7,
    /// The job failed or was cancelled.
    JobFailed = 8,
    /// The job is worse than the baseline.
    Worse = 9,
    /// The service is unavailable.
    Unavailable = 75,
    /// The wait timed out.
    TimedOut = 124,
}

/// A command's failure.
#[derive(Debug)]
pub struct Failure {
    /// The program's exit code.
    pub exit: Exit,
    /// The API's error code, if the API rejected a request.
    pub code: Option<String>,
    message: String,
    details: Vec<String>,
    request_id: Option<String>,
    advice: Option<String>,
    /// The `Retry-After` value, in seconds.
    pub retry_after: Option<f64>,
    /// A `quota_exceeded` error's limit.
    pub limit: Option<String>,
    /// A `validation_failed` error's field errors.
    pub fields: Vec<Field>,
}

/// One field error from the API.
#[derive(Debug, Clone)]
pub struct Field {
    /// The field's path.
    pub field: String,
    /// An explanation for people.
    pub message: String,
}

impl Failure {
    /// Creates a failure that the program itself has found.
    pub fn new(exit: Exit, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            exit,
            code: None,
            message: message.into(),
            details: Vec::new(),
            request_id: None,
            advice: None,
            retry_after: None,
            limit: None,
            fields: Vec::new(),
        })
    }

    /// Creates the failure to read or write `name`.
    pub fn io(name: &str, error: &io::Error) -> Box<Self> {
        Self::new(Exit::Other, format!("{name}: {error}"))
    }

    /// Returns whether the request may have been executed.
    pub fn has_unknown_outcome(&self) -> bool {
        match self.code.as_deref() {
            Some(code) => code == "internal",
            None => self.exit == Exit::Unavailable,
        }
    }

    /// Adds lines with the details.
    #[must_use]
    pub fn with_details(
        mut self: Box<Self>,
        details: impl IntoIterator<Item = String>,
    ) -> Box<Self> {
        self.details.extend(details);
        self
    }

    /// Adds the resource id that the failure is about.
    pub fn with_resource(mut self: Box<Self>, id: &str) -> Box<Self> {
        if !self.message.contains(id) {
            self.message = format!("{id}: {}", self.message);
        }
        self
    }

    /// Sets the action to take next.
    #[must_use]
    pub fn with_advice(mut self: Box<Self>, advice: impl Into<String>) -> Box<Self> {
        self.advice = Some(advice.into());
        self
    }

    /// Creates the failure for an error response without a code: a proxy before the API sent it.
    fn from_proxy(status: u16, request_id: Option<String>, retry_after: Option<f64>) -> Box<Self> {
        let code = code_of_status(status);
        let exit = code.map_or(Exit::Other, exit_of_code);
        let mut failure = Self::new(exit, format!("the server responded with status {status}"));
        failure.code = code.map(str::to_owned);
        failure.request_id = request_id;
        failure.retry_after = retry_after;
        failure.advice = code.and_then(|code| advice_for(code, &Value::Null));
        failure
    }

    /// Creates the failure for an error response from the API.
    pub fn from_response(
        status: u16,
        body: &[u8],
        request_id: Option<String>,
        retry_after: Option<f64>,
    ) -> Box<Self> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = &body["error"];
        let Some(code) = error["code"].as_str() else {
            return Self::from_proxy(status, request_id, retry_after);
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let details = &error["details"];
        let fields: Vec<Field> = details["fields"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|field| {
                Some(Field {
                    field: text(&field["field"])?,
                    message: text(&field["message"])?,
                })
            })
            .collect();
        let mut failure = Self::new(
            exit_of_code(code),
            error["message"].as_str().unwrap_or_default(),
        );
        failure.code = Some(code.to_owned());
        failure.request_id = text(&error["request_id"]).or(request_id);
        failure.retry_after = retry_after;
        failure.limit = text(&details["limit"]);
        failure.fields = fields;
        failure.advice = advice_for(code, details);
        failure
    }
}

/// Returns the error code that an HTTP status stands for.
fn code_of_status(status: u16) -> Option<&'static str> {
    Some(match status {
        400 => "invalid_request",
        401 => "unauthenticated",
        403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        413 => "payload_too_large",
        422 => "validation_failed",
        429 => "rate_limited",
        502..=504 => "unavailable",
        500.. => "internal",
        _ => return None,
    })
}

fn exit_of_code(code: &str) -> Exit {
    match code {
        "unauthenticated" | "invalid_token" | "key_revoked" | "forbidden" | "session_required"
        | "org_required" => Exit::Credential,
        "not_found" => Exit::NotFound,
        "conflict" | "invalid_state" => Exit::Conflict,
        "invalid_request" | "validation_failed" | "payload_too_large" => Exit::InvalidInput,
        "quota_exceeded" | "rate_limited" => Exit::Limit,
        "unavailable" => Exit::Unavailable,
        _ => Exit::Other,
    }
}

/// Returns the one action that resolves most errors with this code.
fn advice_for(code: &str, details: &Value) -> Option<String> {
    let advice = match (code, details["reason"].as_str()) {
        ("unauthenticated" | "invalid_token" | "key_revoked", _) => {
            if std::env::var_os("ASSAY_API_KEY").is_some() {
                "Check ASSAY_API_KEY, which precedes the profile."
            } else {
                "Sign in with: assay login"
            }
        }
        ("session_required", _) => {
            "Sign in with a session token: assay login --with-key <token.txt"
        }
        ("forbidden", Some("scope")) => "Use a key that has the scope, or create one.",
        ("forbidden", Some("terms_not_accepted")) => {
            "An owner must accept the terms in the dashboard."
        }
        ("conflict", Some("choose_organization")) => {
            "Name the organization with: --org ORG_ID. List yours with: assay whoami"
        }
        ("conflict", _) if details["current_version"].is_string() => {
            "Read the items again, and predict them: assay items SUITE -o items.ndjson"
        }
        ("quota_exceeded", _) if details["limit"] == "concurrent_jobs" => {
            "Wait until a job is finished: assay jobs --status running"
        }
        ("quota_exceeded", _) => "See what is left with: assay usage",
        ("unavailable", _) => "Try again later.",
        ("not_found", _) => "List what there is with: assay suites, assay jobs, assay models",
        ("payload_too_large", _) => "Submit a file: large files are sent in parts.",
        _ => return None,
    };
    Some(advice.to_owned())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(code) = &self.code {
            write!(f, "{code}: ")?;
        }
        match self.fields.as_slice() {
            [] => write!(f, "{}", self.message)?,
            [field] => write!(f, "{}: {}", field.field, field.message)?,
            fields => {
                write!(f, "{} errors", fields.len())?;
                for field in fields {
                    write!(f, "\n  {}: {}", field.field, field.message)?;
                }
            }
        }
        for line in &self.details {
            write!(f, "\n  {line}")?;
        }
        if let Some(request_id) = &self.request_id {
            write!(f, "\nrequest {request_id}")?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "\n{advice}")?;
        }
        Ok(())
    }
}

/// A command's result.
pub type Result<T, E = Box<Failure>> = std::result::Result<T, E>;
