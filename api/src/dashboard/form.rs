//! Forms as browsers send them, and the token that shows that a page of the session sent one.

use assay_core::{Code, Details, Error};
use assay_eval::FieldError;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use sha2::Sha256;

/// The fields of a form. A field can have several values.
#[derive(Debug, Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Parses a body or a query of the type `application/x-www-form-urlencoded`.
    pub fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns the first value of a field without white space around it, or an empty string.
    pub fn get(&self, name: &str) -> &str {
        let mut values = self.values(name);
        values.next().unwrap_or_default().trim()
    }

    /// Returns the first value of a field, or `None` if it is absent or blank.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    /// Returns `true` if the form has the field, with any value.
    pub fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Returns all values of a field, such as those of checkboxes.
    pub fn values<'form>(&'form self, name: &str) -> impl Iterator<Item = &'form str> {
        self.0
            .iter()
            .filter(move |(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns `true` if a field has this value among its values.
    pub fn contains(&self, name: &str, wanted: &str) -> bool {
        self.values(name).any(|value| value == wanted)
    }

    /// Returns all fields with their values, in their order.
    pub fn fields(&self) -> &[(String, String)] {
        &self.0
    }

    /// Adds a field.
    pub fn push(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }

    /// Returns a form with this field in addition.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.push(name, value);
        self
    }
}

/// A form as a page shows it: empty, or with what the user typed and why it was not accepted.
#[derive(Debug, Default)]
pub struct Entry {
    /// The fields that the user typed.
    pub form: Form,
    /// The errors of single fields.
    pub fields: Vec<FieldError>,
    /// Why the form was not accepted. Empty if it was not sent yet.
    pub message: String,
}

impl Entry {
    /// Returns the entry of a form that was not sent yet, with its first values.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            ..Self::default()
        }
    }

    /// Returns the entry of a form that was rejected.
    ///
    /// # Errors
    /// The error itself, if the user cannot correct it in this form.
    pub fn rejected(form: &Form, error: Error) -> Result<Self, Error> {
        // The path names what is missing, and not the form.
        if error.code == Code::NotFound {
            return Err(error);
        }
        Self::explained(form, error)
    }

    /// Returns the entry of a form that was rejected, also if a field of the form names something
    /// that does not exist.
    ///
    /// # Errors
    /// The error itself, if the user cannot correct it in this form.
    pub fn explained(form: &Form, error: Error) -> Result<Self, Error> {
        // A role that does not suffice is no matter of the form. Other reasons have details.
        let lacks_role = matches!(error.code, Code::Forbidden | Code::SessionRequired)
            && error.details.is_none();
        if lacks_role || !(400..500).contains(&error.code.http_status()) {
            return Err(error);
        }
        let fields = match error.details {
            Some(Details::Fields { fields }) => fields,
            _ => Vec::new(),
        };
        Ok(Self {
            form: form.clone(),
            fields,
            message: error.message.into_owned(),
        })
    }

    /// Returns the status of a page with the form: 422 if it was rejected.
    pub fn status(&self) -> StatusCode {
        match self.message.is_empty() {
            true => StatusCode::OK,
            false => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    /// Returns the value of a field.
    pub fn value(&self, name: &str) -> &str {
        self.form.get(name)
    }

    /// Returns the message of a field's error, or an empty string.
    pub fn error(&self, name: &str) -> &str {
        let error = self.fields.iter().find(|error| error.field == name);
        error.map_or("", |error| &error.message)
    }
}

/// Returns the token that forms of a session hold. Only pages of the session can read it.
pub fn csrf_token(session_token: &str) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(session_token.as_bytes()) else {
        // HMAC accepts keys of every length.
        return String::new();
    };
    mac.update(b"assay: token of forms");
    hex::encode(&mac.finalize().into_bytes()[..16])
}
