//! The commands for an organization's suites, most of which send one request.

use std::io::{self, BufRead as _};
use std::path::Path;

use serde_json::{Value, json};

use super::context::Context;
use super::manage::{Action, list, present};
use super::suites::{self, SUITES};
use super::{suite_folder, suite_import, suite_init, suite_publish};
use crate::arguments::{Suite, SuiteEdit};
use crate::failure::{Failure, Result};
use crate::operations;
use crate::output::View;

const EDITED: View = View {
    columns: &["suite_id", "title", "visibility", "access", "updated_at"],
    id: "suite_id",
};

const VERSIONS: View = View {
    columns: &[
        "version",
        "status",
        "n_items",
        "release",
        "closes_at",
        "published_at",
    ],
    id: "version",
};

const ERRATUM: View = View {
    columns: &["version", "note", "created_at"],
    id: "version",
};

const GRANTS: View = View {
    columns: &[
        "id",
        "kind",
        "org_id",
        "org_name",
        "domain",
        "uses",
        "max_uses",
        "expires_at",
    ],
    id: "id",
};

const SUBMITTERS: View = View {
    columns: &[
        "submitter",
        "org_name",
        "by_publisher",
        "n_submissions",
        "n_failed",
        "n_entries",
        "last_at",
    ],
    id: "submitter",
};

/// A link with its secret, which no later response has.
const NEW_LINK: View = View {
    columns: &["id", "kind", "max_uses", "expires_at", "token"],
    id: "id",
};

/// `assay suite`
pub fn run(context: &Context, action: Suite) -> Result<()> {
    let action = match action {
        Suite::Init(init) => return suite_init::init(context, *init),
        Suite::Import(import) => return suite_import::import(context, *import),
        Suite::Check { folder } => return suite_folder::check(context, &folder),
        Suite::Audit { folder } => return suite_folder::audit(context, &folder),
        Suite::Publish { folder, yes, draft } => {
            let options = suite_publish::Options {
                yes,
                stops_at_draft: draft,
            };
            return suite_publish::publish(context, &folder, &options);
        }
        Suite::List { own } => {
            let owner = [("owner", own.then_some("me"))];
            return list(
                context,
                operations::LIST_SUITES,
                "suites",
                SUITES,
                &[],
                &owner,
            );
        }
        Suite::Show { suite } => return suites::suites(context, Some(&suite)),
        Suite::Versions { suite } => {
            let path = [("suite_id", suite.as_str())];
            let operation = operations::LIST_SUITE_VERSIONS;
            return list(context, operation, "versions", VERSIONS, &path, &[]);
        }
        Suite::Grants { suite } => {
            let path = [("suite_id", suite.as_str())];
            return list(
                context,
                operations::LIST_GRANTS,
                "grants",
                GRANTS,
                &path,
                &[],
            );
        }
        Suite::Submitters { suite, version } => {
            let path = [("suite_id", suite.as_str())];
            return list(
                context,
                operations::LIST_SUBMITTERS,
                "submitters",
                SUBMITTERS,
                &path,
                &[("version", version.as_deref())],
            );
        }
        Suite::Retire {
            suite,
            version,
            open_answers,
        } => retired(suite, version, open_answers.as_deref())?,
        Suite::Edit(edit) => edited(*edit),
        Suite::Erratum {
            suite,
            version,
            note,
        } => Action::new(operations::CREATE_ERRATUM, ERRATUM)
            .confirm("Add the note? It is never removed.".to_owned())
            .of("suite_id", suite)
            .body(json!({"version": version, "note": note})),
        Suite::Grant {
            suite,
            target,
            max_uses,
            expires_in_days,
        } => {
            let link = target.link.then(|| {
                present([
                    ("max_uses", max_uses.map(Value::from)),
                    ("expires_in_days", expires_in_days.map(Value::from)),
                ])
            });
            let view = if target.link { NEW_LINK } else { GRANTS };
            Action::new(operations::CREATE_GRANT, view)
                .of("suite_id", suite)
                .body(present([
                    ("org_id", target.to.map(Value::from)),
                    ("domain", target.domain.map(Value::from)),
                    ("link", link),
                ]))
        }
        Suite::Revoke { grant } => Action::new(operations::DELETE_GRANT, GRANTS)
            .confirm(format!(
                "Revoke {grant}? The organization no longer sees a private suite."
            ))
            .of("grant_id", grant),
        Suite::Accept => {
            let mut token = String::new();
            let read = io::stdin().lock().read_line(&mut token);
            read.map_err(|error| Failure::io("standard input", &error))?;
            Action::new(operations::ACCEPT_GRANT, SUITES).body(json!({"token": token.trim()}))
        }
    };
    action.run(context)
}

/// Returns the request that retires a version, with the key in this file if its answers are to be opened.
fn retired(suite: String, version: String, key_file: Option<&Path>) -> Result<Action> {
    let key = key_file.map(suite_publish::read_opening_key).transpose()?;
    let public = if key.is_some() {
        " Everybody can read its items and answers afterwards."
    } else {
        ""
    };
    let question = format!(
        "Retire version {version} of {suite}? It accepts no submissions afterwards.{public}"
    );
    let action = Action::new(operations::RETIRE_SUITE, VERSIONS)
        .confirm(question)
        .of("suite_id", suite);
    Ok(action.body(present([
        ("version", Some(Value::from(version))),
        ("open_answers", key.is_some().then_some(Value::Bool(true))),
        ("opening_key", key.map(|key| Value::from(hex::encode(key)))),
        ("confirm", Some(Value::Bool(true))),
    ])))
}

fn edited(edit: SuiteEdit) -> Action {
    let links = edit.links.into_iter();
    let links: Vec<Value> = links
        .map(|(label, url)| json!({"label": label, "url": url}))
        .collect();
    let given = |values: Vec<Value>| (!values.is_empty()).then(|| Value::Array(values));
    let texts = |texts: Vec<String>| given(texts.into_iter().map(Value::from).collect());
    Action::new(operations::UPDATE_SUITE, EDITED)
        .of("suite_id", edit.suite)
        .body(present([
            ("title", edit.title.map(Value::from)),
            ("description", edit.description.map(Value::from)),
            ("license", edit.license.map(Value::from)),
            ("citation", edit.citation.map(Value::from)),
            ("links", given(links)),
            ("tags", texts(edit.tags)),
            ("contact", edit.contact.map(Value::from)),
            ("visibility", edit.visibility.map(Value::from)),
            ("access", edit.access.map(Value::from)),
            ("clear", texts(edit.clear)),
            ("confirm", edit.confirm.then_some(Value::Bool(true))),
        ]))
}
