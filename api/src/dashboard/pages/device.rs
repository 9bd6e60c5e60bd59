//! The page on which a user lets a program have an API key.

use askama::Template;
use assay_core::model::device::DeviceRequest;
use assay_core::model::scope::Scope;
use axum::extract::State;

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::form::{Entry, Form};
use crate::dashboard::response::{PageResult, page, page_with};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Submitted, Visitor};
use crate::ops::device;

#[derive(Template)]
#[template(path = "pages/device.html")]
struct DevicePage {
    layout: Layout,
    entry: Entry,
    /// The code's login, once it is entered.
    login: Option<DeviceRequest>,
}

#[derive(Template)]
#[template(path = "pages/device_decided.html")]
struct DecidedPage {
    layout: Layout,
    is_approved: bool,
}

/// Asks for a code, or shows a code's login.
pub async fn show(State(app): State<App>, visitor: Visitor, Query(query): Query) -> PageResult {
    visitor.org()?;
    let code = query.get("code");
    if code.is_empty() {
        return render(&app, visitor, Entry::default(), None).await;
    }
    match device::find(&app, &visitor.proof()?, code).await {
        Ok(login) => {
            let form = Form::default()
                .with("code", code)
                .with("name", login.client_name.as_str());
            render(&app, visitor, Entry::new(form), Some(login)).await
        }
        Err(error) => {
            let entry = Entry::explained(&query, error)?;
            render(&app, visitor, entry, None).await
        }
    }
}

async fn render(
    app: &App,
    visitor: Visitor,
    entry: Entry,
    login: Option<DeviceRequest>,
) -> PageResult {
    let status = entry.status();
    let template = DevicePage {
        layout: visitor
            .layout(app, "Connect a program", Section::None)
            .await?,
        entry,
        login,
    };
    page_with(status, &template)
}

/// Approves or denies a login.
pub async fn decide(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    let code = fields.get("code");
    let is_approved = fields.get("decision") == "approve";
    let decided = async {
        if is_approved {
            device::approve(&app, &visitor.proof()?, code, super::keys::fields(&fields)).await
        } else {
            device::deny(&app, &visitor.proof()?, code).await
        }
    };
    if let Err(error) = decided.await {
        let entry = Entry::explained(&fields, error)?;
        // Field errors can be corrected; the login is looked up to show it again.
        let login = match entry.fields.is_empty() {
            true => None,
            false => device::find(&app, &visitor.proof()?, code).await.ok(),
        };
        return render(&app, visitor, entry, login).await;
    }
    let layout = visitor
        .layout(&app, "Connect a program", Section::None)
        .await?;
    page(&DecidedPage {
        layout,
        is_approved,
    })
}
