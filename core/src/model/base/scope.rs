//! Members' roles, and API keys' scopes: the operations that a key may be used for.

use assay_eval::FieldError;
use serde::{Serialize, Serializer};
use sqlx::postgres::{PgTypeInfo, PgValueRef, Postgres};
use utoipa::openapi::{ArrayBuilder, Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::model::text_enum::text_enum;
use crate::model::validation;

text_enum! {
    /// A member's role, in ascending order by rights.
    #[derive(PartialOrd, Ord)]
    pub enum Role {
        /// A viewer can read.
        Viewer = "viewer",
        /// A member can also create and revoke keys, upload, submit and cancel.
        Member = "member",
        /// An owner can also manage members, invites, domains and terms.
        Owner = "owner",
    }
}

text_enum! {
    /// An API key's scope: the operations that the key may be used for.
    pub enum Scope {
        /// Suites and their items.
        SuitesRead = "suites:read",
        /// Publishing suites, and reading the drafts of the organization.
        SuitesWrite = "suites:write",
        /// Submitting predictions, and choosing final jobs.
        EvalsWrite = "evals:write",
        /// Creating, reading and deleting uploads.
        UploadsWrite = "uploads:write",
        /// Jobs, their output, items and traces, and comparisons.
        JobsRead = "jobs:read",
        /// Cancelling jobs.
        JobsCancel = "jobs:cancel",
        /// The usage of the organization.
        UsageRead = "usage:read",
        /// The catalog of models.
        ModelsRead = "models:read",
        /// Calling models, and submitting prediction jobs.
        ModelsRun = "models:run",
    }
}

/// An API key's scopes. In JSON they are an array that is never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scopes {
    /// All scopes, also those that a later release adds. Null in the database.
    All,
    /// Some scopes, in [`Scope::ALL`]'s order.
    Only(Vec<Scope>),
}

impl Scopes {
    /// Validates a request's scopes. `None` stands for all.
    ///
    /// # Errors
    /// The errors for the field `scopes`: it is empty, or an element is unknown or repeated.
    pub fn parse(names: Option<Vec<String>>) -> Result<Self, Vec<FieldError>> {
        let Some(names) = names else {
            return Ok(Self::All);
        };
        if names.is_empty() {
            let error = FieldError::new(
                "scopes",
                "range",
                "must name at least one scope; leave the field out for all scopes",
            );
            return Err(vec![error]);
        }
        let mut scopes: Vec<Scope> = Vec::new();
        let mut errors = Vec::new();
        // A list that names more is wrong in any case, and its response must not grow with it.
        for (index, name) in names.iter().enumerate().take(Scope::ALL.len() + 1) {
            let field = format!("scopes[{index}]");
            match validation::one_of(&field, name) {
                Ok(scope) if scopes.contains(&scope) => {
                    errors.push(FieldError::new(field, "duplicate", "must be given once"));
                }
                Ok(scope) => scopes.push(scope),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            scopes.sort_unstable_by_key(|scope| *scope as usize);
            Ok(Self::Only(scopes))
        } else {
            Err(errors)
        }
    }

    /// Returns the scopes as an array.
    pub fn list(&self) -> &[Scope] {
        match self {
            Self::All => Scope::ALL,
            Self::Only(scopes) => scopes,
        }
    }

    /// Returns the column's value: null for all scopes.
    pub fn column(&self) -> Option<&[Scope]> {
        match self {
            Self::All => None,
            Self::Only(scopes) => Some(scopes),
        }
    }

    /// Returns `true` if the scopes contain this one.
    pub fn contains(&self, scope: Scope) -> bool {
        self.list().contains(&scope)
    }

    /// Returns `true` if `self` has all `narrower` scopes.
    pub fn include(&self, narrower: &Self) -> bool {
        match (self, narrower) {
            (Self::All, _) => true,
            // A later release could add scopes.
            (Self::Only(_), Self::All) => false,
            (Self::Only(_), Self::Only(scopes)) => scopes.iter().all(|scope| self.contains(*scope)),
        }
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list().serialize(serializer)
    }
}

impl PartialSchema for Scopes {
    fn schema() -> RefOr<Schema> {
        ArrayBuilder::new()
            .items(Ref::from_schema_name("Scope"))
            .min_items(Some(1))
            .max_items(Some(Scope::ALL.len()))
            .unique_items(true)
            .into()
    }
}

impl ToSchema for Scopes {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((Scope::name().into(), Scope::schema()));
    }
}

impl sqlx::Type<Postgres> for Scopes {
    fn type_info() -> PgTypeInfo {
        <Vec<Scope> as sqlx::Type<Postgres>>::type_info()
    }
    fn compatible(info: &PgTypeInfo) -> bool {
        <Vec<Scope> as sqlx::Type<Postgres>>::compatible(info)
    }
}

impl<'r> sqlx::Decode<'r, Postgres> for Scopes {
    fn decode(value: PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
        let names = <Option<Vec<String>> as sqlx::Decode<'r, Postgres>>::decode(value)?;
        // A later release may have stored other scopes, which this one does not check.
        Ok(names.map_or(Self::All, |names| {
            Self::Only(names.iter().filter_map(|name| name.parse().ok()).collect())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(names: &[&str]) -> Result<Scopes, Vec<(String, &'static str)>> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Scopes::parse(Some(names)).map_err(|errors| {
            let errors = errors.into_iter();
            errors.map(|error| (error.field, error.reason)).collect()
        })
    }

    #[test]
    fn scopes_are_sorted_and_listed() {
        assert_eq!(Scopes::parse(None), Ok(Scopes::All));
        assert_eq!(Scopes::All.list(), Scope::ALL);
        let only = parse(&["usage:read", "evals:write"]).unwrap();
        assert_eq!(
            serde_json::to_string(&only).unwrap(),
            r#"["evals:write","usage:read"]"#
        );
        assert!(only.contains(Scope::UsageRead) && !only.contains(Scope::JobsRead));
    }

    #[test]
    fn bad_scopes_are_named() {
        assert_eq!(parse(&[]), Err(vec![("scopes".into(), "range")]));
        assert_eq!(
            parse(&["jobs:read", "jobs", "jobs:read"]),
            Err(vec![
                ("scopes[1]".into(), "unknown_value"),
                ("scopes[2]".into(), "duplicate")
            ])
        );
        assert_eq!(
            parse(&["jobs"; 1000]).unwrap_err().len(),
            Scope::ALL.len() + 1
        );
    }

    #[test]
    fn only_narrower_scopes_are_included() {
        let one = parse(&["jobs:read"]).unwrap();
        let two = parse(&["jobs:read", "jobs:cancel"]).unwrap();
        assert!(Scopes::All.include(&two) && two.include(&one) && one.include(&one));
        assert!(!one.include(&two) && !two.include(&Scopes::All));
    }
}
