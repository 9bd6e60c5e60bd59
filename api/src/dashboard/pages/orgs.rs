//! Organizations: choosing one, creating one, and its settings.

use askama::Template;
use assay_core::model::org::{DataUse, Org};
use axum::extract::State;

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::form::{Entry, Form};
use crate::dashboard::response::{
    PageResult, next_path, page, redirect, redirect_with_notice, rejected,
};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Submitted, Visitor};
use crate::generated::inputs;
use crate::ops::orgs;

#[derive(Template)]
#[template(path = "pages/choose.html")]
struct ChoosePage {
    layout: Layout,
    next: String,
}

#[derive(Template)]
#[template(path = "pages/new_org.html")]
struct NewOrgPage {
    layout: Layout,
    entry: Entry,
}

#[derive(Template)]
#[template(path = "pages/settings.html")]
struct SettingsPage {
    layout: Layout,
    org: Org,
    entry: Entry,
}

impl SettingsPage {
    /// Returns what each data use means.
    fn data_uses(&self) -> [(DataUse, &'static str); 3] {
        [
            (
                DataUse::ScoringOnly,
                "Your submissions are used to compute your scores, and for nothing else.",
            ),
            (
                DataUse::AggregateResearch,
                "Statistics over the submissions of many organizations may be published. They do not name you, and show no single submission.",
            ),
            (
                DataUse::ModelImprovement,
                "Your submissions may also be used to improve models of human behaviour.",
            ),
        ]
    }
}

/// Shows the organizations for a user who has not chosen one.
pub async fn choose(State(app): State<App>, visitor: Visitor, Query(query): Query) -> PageResult {
    let layout = visitor
        .layout(&app, "Choose an organization", Section::None)
        .await?;
    let next = next_path(query.get("next")).to_owned();
    page(&ChoosePage { layout, next })
}

/// Changes to the organization that the form names. The API's layers have recorded the choice
/// in the session.
pub async fn chosen(visitor: Visitor, Submitted(fields): Submitted) -> PageResult {
    visitor.org()?;
    Ok(redirect(next_path(fields.get("next"))))
}

/// Shows a new organization's form.
pub async fn new(State(app): State<App>, visitor: Visitor) -> PageResult {
    let layout = visitor
        .layout(&app, "Create an organization", Section::None)
        .await?;
    let entry = Entry::default();
    page(&NewOrgPage { layout, entry })
}

/// Creates an organization, and opens the page that changes to it.
pub async fn create(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    let name = fields.get("name").to_owned();
    match orgs::create(&app, &visitor.proof()?, inputs::CreateOrg { name }).await {
        Ok(org) if visitor.org().is_err() => {
            let notice = format!("The organization {} was created.", org.name);
            Ok(redirect_with_notice("/", &notice))
        }
        Ok(org) => {
            let notice = format!(
                "The organization {} was created. Choose it to use it.",
                org.name
            );
            Ok(redirect_with_notice("/choose", &notice))
        }
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            let layout = visitor
                .layout(&app, "Create an organization", Section::None)
                .await?;
            rejected(&NewOrgPage { layout, entry })
        }
    }
}

/// Shows the organization's settings.
pub async fn settings(State(app): State<App>, visitor: Visitor) -> PageResult {
    let org = visitor.org()?;
    let form = Form::default()
        .with("name", org.name.as_str())
        .with("data_use", org.data_use.as_str())
        .with("handle", org.handle.as_deref().unwrap_or_default());
    let layout = visitor.layout(&app, "Settings", Section::Settings).await?;
    let entry = Entry::new(form);
    page(&SettingsPage { layout, org, entry })
}

/// Changes the organization's settings.
pub async fn update(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    let org = visitor.org()?;
    let owner = visitor.proof()?;
    let change = inputs::UpdateOrg {
        name: Some(fields.get("name").to_owned()),
        data_use: Some(fields.get("data_use").to_owned()),
        handle: fields.given("handle").map(str::to_owned),
    };
    match orgs::update(&app, &owner, org.id.as_str(), change).await {
        Ok(_) => Ok(redirect_with_notice(
            "/settings",
            "The settings were saved.",
        )),
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            let layout = visitor.layout(&app, "Settings", Section::Settings).await?;
            rejected(&SettingsPage { layout, org, entry })
        }
    }
}
