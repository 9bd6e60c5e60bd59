//! Forms as browsers send them, and the token that shows that the session's page sent one.

use assay_core::{Code, Details, Error};
use assay_eval::FieldError;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use sha2::Sha256;

/// A form's fields. A field can have several values.
#[derive(Debug, Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Parses a body or a query with the type `application/x-www-form-urlencoded`.
    pub fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns a field's first value without white space around it, or an empty string.
    pub fn get(&self, name: &str) -> &str {
        let mut values = self.values(name);
        values.next().unwrap_or_default().trim()
    }

    /// Returns a field's first value, or `None` if it is absent or blank.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    /// Returns `true` if the form has the field, with any value.
    pub fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Returns all values in a field, such as from checkboxes.
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
    /// Single fields' errors.
    pub fields: Vec<FieldError>,
    /// Why the form was not accepted. Empty if it was not sent yet.
    pub message: String,
}

impl Entry {
    /// Returns the entry for a form that was not sent yet, with its first values.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            ..Self::default()
        }
    }

    /// Returns the entry for a form that was rejected.
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

    /// Returns the entry for a form that was rejected, also if a form field names something
    /// that does not exist.
    ///
    /// # Errors
    /// The error itself, if the user cannot correct it in this form.
    pub fn explained(form: &Form, error: Error) -> Result<Self, Error> {
        // A role that does not suffice does not concern the form. Other reasons have details.
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

    /// Returns a page's status with the form: 422 if it was rejected.
    pub fn status(&self) -> StatusCode {
        match self.message.is_empty() {
            true => StatusCode::OK,
            false => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    /// Returns a field's value.
    pub fn value(&self, name: &str) -> &str {
        self.form.get(name)
    }

    /// Returns a field error's message, or an empty string.
    pub fn error(&self, name: &str) -> &str {
        let error = self.fields.iter().find(|error| error.field == name);
        error.map_or("", |error| &error.message)
    }
}

/// Returns the token that a session's forms hold. Only the session's pages can read it.
pub fn csrf_token(session_token: &str) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(session_token.as_bytes()) else {
        // HMAC accepts keys with every length.
        return String::new();
    };
    mac.update(b"assay: token of forms");
    hex::encode(&mac.finalize().into_bytes()[..16])
}
