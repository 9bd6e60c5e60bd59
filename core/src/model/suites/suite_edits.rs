//! Changes of a suite that hold for all its versions: its texts, its visibility and its access.

use assay_eval::FieldError;
use assay_eval::suite::SuiteMetadata;

use crate::model::error::{Errors, Result};
use crate::model::error_details::SuiteAccess;
use crate::model::suite::{SuiteTextKey, SuiteVisibility};
use crate::model::text_enum::text_enum;
use crate::model::validation;

text_enum! {
    /// The suites of organizations that the operator reviews.
    pub enum SuiteReview {
        /// None.
        None = "none",
        /// A suite becomes `listed` or `public` only after the operator has approved it.
        Listed = "listed",
    }
}

impl SuiteReview {
    /// Returns `true` if a suite waits for a review before it gets a wider visibility. A suite that was approved once does not.
    pub const fn is_needed(
        self,
        before: SuiteVisibility,
        wanted: SuiteVisibility,
        was_approved: bool,
    ) -> bool {
        matches!(self, Self::Listed) && wanted.is_wider_than(before) && !was_approved
    }
}

/// The part of a suite that its publisher can change.
#[derive(Debug, Clone, PartialEq)]
pub struct EditableSuite {
    /// The callers who can see the suite.
    pub visibility: SuiteVisibility,
    /// The organizations that can submit.
    pub access: SuiteAccess,
    /// The texts.
    pub metadata: SuiteMetadata,
}

impl EditableSuite {
    /// Returns `true` if more organizations may submit, or see the suite.
    pub fn is_wider_than(&self, before: &Self) -> bool {
        let access = |suite: &Self| match suite.access {
            SuiteAccess::Granted => 0,
            SuiteAccess::VerifiedDomain => 1,
            SuiteAccess::Everyone => 2,
        };
        self.visibility.is_wider_than(before.visibility) || access(self) > access(before)
    }
}

/// Changes that are not validated yet. `None` changes nothing.
#[derive(Debug, Clone, Default)]
pub struct SuiteEdits {
    /// The new texts.
    pub metadata: SuiteMetadata,
    /// The callers who can see the suite.
    pub visibility: Option<String>,
    /// The organizations that can submit.
    pub access: Option<String>,
    /// Names whose texts are removed.
    pub clear: Vec<String>,
}

impl SuiteEdits {
    /// Validates the changes.
    ///
    /// # Errors
    /// All field errors at once; `required` if nothing is changed.
    pub fn validate(self) -> Result<ValidSuiteEdits> {
        let Self {
            metadata,
            visibility,
            access,
            clear,
        } = self;
        let mut errors = Errors::default();
        errors.extend(metadata.check());
        let changes_text = metadata != SuiteMetadata::default() || !clear.is_empty();
        if !changes_text && visibility.is_none() && access.is_none() {
            let message = "give at least one of title, description, license, citation, links, tags, contact, visibility, access and clear";
            errors.push(FieldError::new("body", "required", message));
        }
        let visibility = visibility.map(|text| validation::one_of("visibility", &text));
        let visibility = errors.take(visibility.transpose());
        let access = access.map(|text| validation::one_of("access", &text));
        let access = errors.take(access.transpose());
        let mut keys = Vec::new();
        for (at, name) in clear.iter().enumerate() {
            let key = validation::one_of::<SuiteTextKey>(&format!("clear[{at}]"), name);
            keys.extend(errors.take(key.map(Some)));
        }
        errors.finish()?;
        Ok(ValidSuiteEdits {
            metadata,
            visibility,
            access,
            clear: keys,
        })
    }
}

/// Validated changes.
#[derive(Debug, Clone)]
pub struct ValidSuiteEdits {
    metadata: SuiteMetadata,
    visibility: Option<SuiteVisibility>,
    access: Option<SuiteAccess>,
    clear: Vec<SuiteTextKey>,
}

impl ValidSuiteEdits {
    /// Returns the suite after the changes.
    pub fn apply(self, before: EditableSuite) -> EditableSuite {
        let Self {
            metadata: new,
            visibility,
            access,
            clear,
        } = self;
        let old = before.metadata;
        let mut metadata = SuiteMetadata {
            title: new.title.or(old.title),
            description: new.description.or(old.description),
            license: new.license.or(old.license),
            citation: new.citation.or(old.citation),
            links: new.links.or(old.links),
            tags: new.tags.or(old.tags),
            contact: new.contact.or(old.contact),
        };
        for key in clear {
            match key {
                SuiteTextKey::Title => metadata.title = None,
                SuiteTextKey::Description => metadata.description = None,
                SuiteTextKey::License => metadata.license = None,
                SuiteTextKey::Citation => metadata.citation = None,
                SuiteTextKey::Links => metadata.links = None,
                SuiteTextKey::Tags => metadata.tags = None,
                SuiteTextKey::Contact => metadata.contact = None,
            }
        }
        EditableSuite {
            visibility: visibility.unwrap_or(before.visibility),
            access: access.unwrap_or(before.access),
            metadata,
        }
    }
}
