//! Usage, models, and the resources that an organization manages.

use std::io::{self, IsTerminal as _};

use serde_json::{Map, Value, json};

use super::context::Context;
use super::listing::entries;
use crate::arguments::{Domains, Invites, Keys, Members, Webhooks};
use crate::failure::{Exit, Failure, Result};
use crate::messages::print;
use crate::operations::{self, Operation};
use crate::output::{Format, View};

const USAGE: View = View {
    columns: &[
        "org_id",
        "plan",
        "totals/eval_items",
        "limits/eval_items_per_month",
        "active_jobs",
    ],
    id: "org_id",
};

const DAYS: View = View {
    columns: &[
        "date",
        "eval_items",
        "eval_items_refunded",
        "jobs",
        "requests",
    ],
    id: "date",
};

const MODELS: View = View {
    columns: &["id", "task", "status", "context_length", "endpoints"],
    id: "id",
};

const KEYS: View = View {
    columns: &[
        "id",
        "name",
        "prefix",
        "scopes",
        "expires_at",
        "last_used_at",
        "revoked_at",
    ],
    id: "id",
};

const MEMBERS: View = View {
    columns: &["user_id", "email", "role", "created_at"],
    id: "user_id",
};

const INVITES: View = View {
    columns: &[
        "id",
        "email",
        "role",
        "expires_at",
        "accepted_at",
        "revoked_at",
    ],
    id: "id",
};

const DOMAINS: View = View {
    columns: &[
        "domain",
        "verified_at",
        "auto_join",
        "record/name",
        "record/value",
    ],
    id: "domain",
};

const WEBHOOKS: View = View {
    columns: &[
        "id",
        "url",
        "events",
        "enabled",
        "disabled_reason",
        "failing_since",
    ],
    id: "id",
};

const DELIVERIES: View = View {
    columns: &[
        "id",
        "event_id",
        "status",
        "attempt",
        "response_status",
        "error",
        "created_at",
    ],
    id: "id",
};

/// A key with its secret, which no later response has.
const NEW_KEY: View = View {
    columns: &["id", "name", "scopes", "expires_at", "key"],
    id: "id",
};

/// A webhook with its secret, which no later response has.
const NEW_WEBHOOK: View = View {
    columns: &["id", "url", "events", "secret"],
    id: "id",
};

/// One operation's request, and its response's view.
pub struct Action {
    operation: Operation,
    path: Vec<(&'static str, String)>,
    body: Option<Value>,
    view: View,
    /// The question before an action that cannot be undone.
    question: Option<String>,
}

/// The fields for secrets that are shown once.
const SECRETS: [&str; 3] = ["key", "secret", "token"];

/// Asks a question on a terminal, unless the user wants no questions. Fails unless the response is
/// yes.
fn confirm(context: &Context, question: &str) -> Result<()> {
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if context.global.no_input || !is_terminal {
        return Ok(());
    }
    print(&format!("{question} [y/N]"));
    let mut response = String::new();
    let read = io::stdin().read_line(&mut response);
    read.map_err(|error| Failure::io("standard input", &error))?;
    if matches!(response.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::new(Exit::Other, "nothing was changed"))
    }
}

impl Action {
    pub fn new(operation: Operation, view: View) -> Self {
        Self {
            operation,
            path: Vec::new(),
            body: None,
            view,
            question: None,
        }
    }

    pub fn confirm(mut self, question: String) -> Self {
        self.question = Some(question);
        self
    }

    pub fn of(mut self, name: &'static str, value: String) -> Self {
        self.path.push((name, value));
        self
    }

    pub fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Sends the request, and shows the response's resource if it has one.
    pub fn run(self, context: &Context) -> Result<()> {
        let has_secret = self
            .view
            .columns
            .iter()
            .any(|column| SECRETS.contains(column));
        if has_secret && context.output.format() == Format::Id {
            return Err(Failure::new(
                Exit::Usage,
                "with -f id the secret would be lost, which is shown once",
            ));
        }
        if let Some(question) = &self.question {
            confirm(context, question)?;
        }
        let client = context.client()?;
        let mut request = client.request(&self.operation);
        for (name, value) in &self.path {
            request = request.path(name, value);
        }
        if let Some(body) = &self.body {
            request = request.json(body);
        }
        let response = request.send()?;
        if response.body.is_empty() {
            return Ok(());
        }
        let resource = response.json()?;
        context.output.object(self.view, &resource)?;
        if has_secret {
            context
                .messages
                .progress("The secret is shown once. Keep it now.");
        }
        if self.operation == operations::CLAIM_DOMAIN {
            let hint = "Create this DNS record, then run: assay domains verify DOMAIN";
            context.messages.progress(hint);
        }
        if resource["verified"] == false {
            return Err(Failure::new(
                Exit::Conflict,
                "the DNS record was not found yet",
            ));
        }
        Ok(())
    }
}

/// Shows all entries in a listing.
pub fn list(
    context: &Context,
    operation: Operation,
    field: &'static str,
    view: View,
    path: &[(&str, &str)],
    query: &[(&str, Option<&str>)],
) -> Result<()> {
    let client = context.client()?;
    let page = || {
        let mut request = client.request(&operation);
        for (name, value) in path {
            request = request.path(name, value);
        }
        for (name, value) in query {
            request = request.query_if(name, *value);
        }
        request
    };
    context.output.list(view, entries(page, field))
}

/// Returns an object with the fields that have a value.
pub fn present(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let present = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}

fn scopes_of(scopes: Vec<String>) -> Option<Value> {
    (!scopes.is_empty()).then(|| scopes.into())
}

/// `assay usage`
pub fn usage(context: &Context, days: bool) -> Result<()> {
    if days {
        return list(context, operations::LIST_USAGE_DAYS, "days", DAYS, &[], &[]);
    }
    Action::new(operations::GET_USAGE, USAGE).run(context)
}

/// `assay models`
pub fn models(context: &Context, model: Option<&str>) -> Result<()> {
    match model {
        Some(id) => Action::new(operations::GET_MODEL, MODELS)
            .of("model_id", id.to_owned())
            .run(context),
        None => list(context, operations::LIST_MODELS, "models", MODELS, &[], &[]),
    }
}

/// `assay keys`
pub fn keys(context: &Context, action: Option<Keys>) -> Result<()> {
    let action = match action.unwrap_or(Keys::List) {
        Keys::List => return list(context, operations::LIST_KEYS, "keys", KEYS, &[], &[]),
        Keys::Create {
            name,
            scopes,
            expires_at,
        } => Action::new(operations::CREATE_KEY, NEW_KEY).body(present([
            ("name", Some(name.into())),
            ("scopes", scopes_of(scopes)),
            ("expires_at", expires_at.map(Value::from)),
        ])),
        Keys::Update {
            id,
            name,
            scopes,
            expires_at,
        } => Action::new(operations::UPDATE_KEY, KEYS)
            .of("key_id", id)
            .body(present([
                ("name", name.map(Value::from)),
                ("scopes", scopes_of(scopes)),
                ("expires_at", expires_at.map(Value::from)),
            ])),
        Keys::Rotate { id, overlap_hours } => Action::new(operations::ROTATE_KEY, NEW_KEY)
            .of("key_id", id)
            .body(present([("overlap_hours", overlap_hours.map(Value::from))])),
        Keys::Revoke { id } => Action::new(operations::REVOKE_KEY, KEYS)
            .confirm(format!("Revoke {id}? Programs that use it fail at once."))
            .of("key_id", id),
    };
    action.run(context)
}

/// `assay members`
pub fn members(context: &Context, action: Option<Members>) -> Result<()> {
    let action = match action.unwrap_or(Members::List) {
        Members::List => {
            return list(
                context,
                operations::LIST_MEMBERS,
                "members",
                MEMBERS,
                &[],
                &[],
            );
        }
        Members::Role { user_id, role } => Action::new(operations::UPDATE_MEMBER, MEMBERS)
            .of("user_id", user_id)
            .body(json!({"role": role})),
        Members::Remove { user_id } => Action::new(operations::REMOVE_MEMBER, MEMBERS)
            .confirm(format!("Remove {user_id}?"))
            .of("user_id", user_id),
    };
    action.run(context)
}

/// `assay invites`
pub fn invites(context: &Context, action: Option<Invites>) -> Result<()> {
    let action = match action.unwrap_or(Invites::List) {
        Invites::List => {
            return list(
                context,
                operations::LIST_INVITES,
                "invites",
                INVITES,
                &[],
                &[],
            );
        }
        Invites::Create { email, role } => Action::new(operations::CREATE_INVITE, INVITES)
            .body(json!({"email": email, "role": role})),
        Invites::Revoke { id } => {
            Action::new(operations::REVOKE_INVITE, INVITES).of("invite_id", id)
        }
    };
    action.run(context)
}

/// `assay domains`
pub fn domains(context: &Context, action: Option<Domains>) -> Result<()> {
    let action = match action.unwrap_or(Domains::List) {
        Domains::List => {
            return list(
                context,
                operations::LIST_DOMAINS,
                "domains",
                DOMAINS,
                &[],
                &[],
            );
        }
        Domains::Claim { domain } => {
            Action::new(operations::CLAIM_DOMAIN, DOMAINS).body(json!({"domain": domain}))
        }
        Domains::Verify { domain } => {
            Action::new(operations::VERIFY_DOMAIN, DOMAINS).of("domain", domain)
        }
        Domains::AutoJoin { domain, auto_join } => Action::new(operations::UPDATE_DOMAIN, DOMAINS)
            .of("domain", domain)
            .body(json!({"auto_join": auto_join})),
        Domains::Release { domain } => Action::new(operations::RELEASE_DOMAIN, DOMAINS)
            .confirm(format!("Release {domain}?"))
            .of("domain", domain),
    };
    action.run(context)
}

/// `assay webhooks`
pub fn webhooks(context: &Context, action: Option<Webhooks>) -> Result<()> {
    const ID: &str = "webhook_id";
    let action = match action.unwrap_or(Webhooks::List) {
        Webhooks::List => {
            return list(
                context,
                operations::LIST_WEBHOOKS,
                "webhooks",
                WEBHOOKS,
                &[],
                &[],
            );
        }
        Webhooks::Deliveries { id, status } => {
            let (path, query) = ([(ID, id.as_str())], [("status", status.as_deref())]);
            let operation = operations::LIST_DELIVERIES;
            return list(context, operation, "deliveries", DELIVERIES, &path, &query);
        }
        Webhooks::Show { id } => Action::new(operations::GET_WEBHOOK, WEBHOOKS).of(ID, id),
        Webhooks::Create {
            url,
            events,
            description,
        } => Action::new(operations::CREATE_WEBHOOK, NEW_WEBHOOK).body(present([
            ("url", Some(url.into())),
            ("events", Some(events.into())),
            ("description", description.map(Value::from)),
        ])),
        Webhooks::Enable { id, enabled } => Action::new(operations::UPDATE_WEBHOOK, WEBHOOKS)
            .of(ID, id)
            .body(json!({"enabled": enabled})),
        Webhooks::Delete { id } => Action::new(operations::DELETE_WEBHOOK, WEBHOOKS)
            .confirm(format!("Delete {id}?"))
            .of(ID, id),
        Webhooks::Rotate { id, overlap_hours } => {
            Action::new(operations::ROTATE_WEBHOOK, NEW_WEBHOOK)
                .of(ID, id)
                .body(present([("overlap_hours", overlap_hours.map(Value::from))]))
        }
        Webhooks::Test { id, event } => Action::new(operations::TEST_WEBHOOK, DELIVERIES)
            .of(ID, id)
            .body(json!({"type": event})),
        Webhooks::Retry { id, delivery_id } => Action::new(operations::RETRY_DELIVERY, DELIVERIES)
            .of(ID, id)
            .of("delivery_id", delivery_id),
        Webhooks::Recover { id, since } => Action::new(operations::RECOVER_WEBHOOK, WEBHOOKS)
            .of(ID, id)
            .body(json!({"since": since})),
    };
    action.run(context)
}
