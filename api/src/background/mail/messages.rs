//! The email texts.

use std::fmt::Write as _;

use assay_core::Timestamp;
use assay_core::model::key::ApiKey;
use assay_core::model::mail_preferences::News;
use assay_core::model::public_name;
use assay_core::model::webhook::{DisabledReason, Webhook};
use assay_core::store::auth::LINK_LIFETIME;
use assay_core::store::invite::LIFETIME_DAYS;

use super::email::{Email, Kind};

/// Returns the email with a sign-in link. `next_at` is the time from which further emails are
/// possible, if this is the last one until then.
pub fn sign_in(public_url: &str, to: &str, token: &str, next_at: Option<Timestamp>) -> Email {
    let link = format!("{public_url}/sign-in?token={token}");
    let curl = format!(
        "curl -X POST {public_url}/v1/auth/email/verify -H 'Content-Type: application/json' -d '{{\"token\": \"{token}\"}}'"
    );
    let minutes = LINK_LIFETIME.as_secs() / 60;
    let validity = format!(
        "The link works once, within the next {minutes} minutes. Signing in ends all other links that were sent to this address. If you \
                    did not ask for it, ignore this email: nothing happens without the link."
    );
    let mut paragraphs = vec![
        Paragraph::Text("Hello,"),
        Paragraph::Text("here is your link to sign in to Assay:"),
        Paragraph::Link("Sign in", &link),
        Paragraph::Text("Or, without a browser:"),
        Paragraph::Code(&curl),
        Paragraph::Text(&validity),
    ];
    let last = next_at.map(|next_at| {
        format!(
            "This is the last email for now, because many links were requested for this address. No other email follows before {}. This link, \
             and the other links of the last {minutes} minutes, work until then.",
            clock_time(next_at)
        )
    });
    paragraphs.extend(last.as_deref().map(Paragraph::Text));
    email(
        Kind::SignIn,
        to,
        "Your link to sign in to Assay",
        &paragraphs,
    )
}

/// Formats the time in a day, such as `14:05:09 UTC`.
fn clock_time(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} UTC", text.get(11..19).unwrap_or(&text))
}

/// Returns an invite's email. It holds no secret: the invited user proves the address by
/// signing in with it.
///
/// Anybody can choose an organization's name. So the name is quoted in the text, absent from
/// the subject, and left out if it looks like a link. `inviter` is the inviting user's verified
/// address.
pub fn invite(public_url: &str, to: &str, org: &str, inviter: &str, role: &str) -> Email {
    let link = format!("{public_url}/sign-in");
    let org = match public_name::has_link(org) {
        true => String::from("an organization"),
        false => named("the organization", org),
    };
    let invited = format!("{inviter} invites you to {org} on Assay, as {role}.");
    let address =
        format!("To accept, sign in within {LIFETIME_DAYS} days with this address, {to}:");
    email(
        Kind::Notice,
        to,
        "You are invited to an organization on Assay",
        &[
            Paragraph::Text("Hello,"),
            Paragraph::Text(&invited),
            Paragraph::Text(&address),
            Paragraph::Link("Sign in", &link),
            Paragraph::Text(
                "If you do not know who this is, ignore this email: nothing happens unless you sign in.",
            ),
        ],
    )
}

/// Returns what a name stands for with the name in quotation marks, or without it if the name looks
/// like a link. A quotation mark in the name would seem to end the quotation.
fn named(what: &str, name: &str) -> String {
    match public_name::has_link(name) {
        true => what.to_owned(),
        false => format!("{what} “{}”", name.replace(['“', '”', '„', '"'], "'")),
    }
}

/// Returns the notice that an organization's keys expire soon, to an owner or to their creator.
///
/// Members choose key and organization names. So both are quoted, and left out if they look
/// like links.
pub fn keys_expiring(to: &str, org: &str, keys: &[ApiKey]) -> Email {
    let intro = format!(
        "These API keys of {} on Assay expire soon. From then on, programs that use them fail.",
        named("the organization", org)
    );
    let keys: Vec<String> = keys
        .iter()
        .map(|key| {
            let expires_at = key.expires_at.map_or_else(String::new, |at| at.to_string());
            let key_name = named("The key", &key.name);
            format!(
                "{key_name} ({}…, {}) expires at {expires_at}.",
                key.prefix, key.id
            )
        })
        .collect();
    let mut paragraphs = vec![Paragraph::Text("Hello,"), Paragraph::Text(&intro)];
    paragraphs.extend(keys.iter().map(|key| Paragraph::Text(key)));
    paragraphs.push(Paragraph::Text(
        "To replace a key without an interruption, rotate it with POST /v1/keys/{key_id}/rotate: the old key keeps working for a while. If \
         nobody needs a key any more, there is nothing to do.",
    ));
    email(Kind::Notice, to, "API keys expire soon", &paragraphs)
}

/// Returns the notice to an owner that the platform has disabled a webhook. It names no URL, which can
/// contain a secret.
pub fn webhook_disabled(to: &str, org: &str, webhook: &Webhook) -> Email {
    let reason = match webhook.disabled_reason {
        Some(DisabledReason::Gone) => "its receiver responded with the status 410 (Gone)",
        Some(DisabledReason::Failing) => "no delivery has succeeded for 5 days",
        Some(DisabledReason::Owner) | None => "an owner disabled it",
    };
    let disabled = format!(
        "The webhook {} of {} on Assay was disabled: {reason}.",
        webhook.id,
        named("the organization", org)
    );
    let remedy = format!(
        "Once the receiver works, enable the webhook with PATCH /v1/webhooks/{0} and send the missed events with POST \
         /v1/webhooks/{0}/recover.",
        webhook.id
    );
    email(
        Kind::Notice,
        to,
        "A webhook was disabled",
        &[
            Paragraph::Text("Hello,"),
            Paragraph::Text(&disabled),
            Paragraph::Text(&remedy),
        ],
    )
}

/// Returns the notice that a provider's account can sign the user in from now on.
pub fn account_linked(public_url: &str, to: &str, issuer: &str) -> Email {
    let linked = format!(
        "An account of {issuer} with your address has signed in to Assay. From now on it signs you in, \
         even if its address changes."
    );
    let account = format!("{public_url}/account");
    email(
        Kind::Notice,
        to,
        "An account can now sign you in to Assay",
        &[
            Paragraph::Text("Hello,"),
            Paragraph::Text(&linked),
            Paragraph::Text("If this was not you, remove the account and sign out everywhere:"),
            Paragraph::Link("Account", &account),
        ],
    )
}

/// Returns the email about jobs and usage that a user has turned on. It contains no scores: their
/// pages apply the suite's disclosure policy.
///
/// Members choose the job labels. So they are quoted, and left out if they look like links.
pub fn news(public_url: &str, news: &News) -> Email {
    let org = named("the organization", &news.org);
    let failed = news.jobs.iter().filter(|job| !job.has_succeeded).count();
    let more = if news.has_more { "more than " } else { "" };
    let count = |count: usize| match count {
        1 => String::from("1 job has"),
        count => format!("{more}{count} jobs have"),
    };
    let subject = match (news.jobs.len(), news.thresholds.as_slice()) {
        (0, [first, ..]) => format!("Your usage has reached {} % of a limit", first.percent),
        (0, []) => String::from("More jobs have finished"),
        (jobs, _) if jobs == failed => format!("{} failed", capitalized(&count(jobs))),
        (jobs, _) => format!("{} finished", capitalized(&count(jobs))),
    };
    let mut texts = Vec::new();
    for threshold in &news.thresholds {
        texts.push(format!(
            "In {org} on Assay, {} of {} ({} %) of the limit {} are used. It is reset at {}.",
            threshold.used, threshold.max, threshold.percent, threshold.limit, threshold.period_end
        ));
    }
    if !news.jobs.is_empty() {
        let finished = count(news.jobs.len());
        texts.push(match news.has_more {
            true => format!("In {org} on Assay, {finished} finished. The first of them:"),
            false => {
                format!("In {org} on Assay, {finished} finished, {failed} of them without success.")
            }
        });
    }
    let jobs = news.jobs.iter().map(|job| {
        let label = job.label.as_deref().unwrap_or_default();
        let outcome = if job.has_succeeded {
            "succeeded"
        } else {
            "failed"
        };
        let name = match label.is_empty() {
            true => format!("A job for {}", job.subject),
            false => format!("{} for {}", named("The job", label), job.subject),
        };
        (
            format!("{name} has {outcome}."),
            format!("{public_url}/jobs/{}", job.id),
        )
    });
    let jobs: Vec<(String, String)> = jobs.collect();
    let usage = format!("{public_url}/usage");
    let account = format!("{public_url}/account");
    let mut paragraphs = vec![Paragraph::Text("Hello,")];
    paragraphs.extend(texts.iter().map(|text| Paragraph::Text(text)));
    if !news.thresholds.is_empty() {
        paragraphs.push(Paragraph::Link("Usage", &usage));
    }
    for (text, link) in &jobs {
        paragraphs.push(Paragraph::Text(text));
        paragraphs.push(Paragraph::Link("Open the job", link));
    }
    paragraphs.push(Paragraph::Text(
        "You get this email because it is turned on in your account. To turn it off:",
    ));
    paragraphs.push(Paragraph::Link("Account", &account));
    email(Kind::Notice, &news.email, &subject, &paragraphs)
}

/// Returns a text with its first letter, which must be ASCII, in upper case.
fn capitalized(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// An email paragraph.
enum Paragraph<'a> {
    Text(&'a str),
    Link(&'a str, &'a str),
    Code(&'a str),
}

/// Returns an email with the paragraphs as plain text and as HTML.
fn email(kind: Kind, to: &str, subject: &str, paragraphs: &[Paragraph<'_>]) -> Email {
    let mut text = String::new();
    let mut html = String::new();
    for paragraph in paragraphs {
        // Writing to a `String` cannot fail.
        let _ = match paragraph {
            Paragraph::Text(words) => write!(text, "{words}\r\n\r\n")
                .and_then(|()| write!(html, "<p>{}</p>", escape(words))),
            Paragraph::Link(label, link) => write!(text, "    {link}\r\n\r\n").and_then(|()| {
                write!(
                    html,
                    "<p><a href=\"{0}\">{1}</a><br><small>{0}</small></p>",
                    escape(link),
                    escape(label)
                )
            }),
            Paragraph::Code(code) => write!(text, "    {code}\r\n\r\n")
                .and_then(|()| write!(html, "<pre>{}</pre>", escape(code))),
        };
    }
    let html = format!(
        "<!doctype html><html lang=\"en\"><body style=\"font-family: sans-serif\">{html}</body></html>"
    );
    Email {
        kind,
        to: to.to_owned(),
        subject: subject.to_owned(),
        text,
        html,
    }
}

/// Escapes a text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use assay_core::model::event::UsageThreshold;
    use assay_core::model::mail_preferences::FinishedJob;

    use super::*;

    #[test]
    fn name_is_escaped_in_html() {
        let email = invite(
            "https://assay.example",
            "ada@example.org",
            "<b>A & 'B'</b>",
            "bob@example.org",
            "member",
        );
        assert!(
            email
                .html
                .contains("“&lt;b&gt;A &amp; &#39;B&#39;&lt;/b&gt;”")
                && !email.html.contains("<b>")
        );
        assert!(
            email.text.contains("“<b>A & 'B'</b>”")
                && email.text.contains("https://assay.example/sign-in\r\n")
        );
    }

    #[test]
    fn news_names_jobs_and_usage() {
        let job = |label: &str, has_succeeded| FinishedJob {
            id: "job_0123456789012345678901".parse().unwrap(),
            label: (!label.is_empty()).then(|| label.to_owned()),
            subject: String::from("suite:lunch"),
            has_succeeded,
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let threshold = UsageThreshold {
            limit: String::from("eval_items_per_month"),
            percent: 80,
            used: 16_000,
            max: 20_000,
            period_start: at("2026-11-01T00:00:00Z"),
            period_end: at("2026-12-01T00:00:00Z"),
        };
        let of = |jobs, thresholds| News {
            email: String::from("ada@example.org"),
            org: String::from("Acme"),
            jobs,
            has_more: false,
            thresholds,
        };
        let mail = |of: News| news("https://assay.example", &of);
        let mixed = mail(of(
            vec![
                job("gru4rec <64>", true),
                job("https://evil.example", false),
                job("", false),
            ],
            vec![threshold.clone()],
        ));
        assert_eq!(mixed.subject, "3 jobs have finished");
        for part in [
            "In the organization “Acme” on Assay, 3 jobs have finished, 2 of them without success.",
            "The job “gru4rec <64>” for suite:lunch has succeeded.",
            "The job for suite:lunch has failed.",
            "A job for suite:lunch has failed.",
            "https://assay.example/jobs/job_0123456789012345678901\r\n",
            "16000 of 20000 (80 %) of the limit eval_items_per_month are used. It is reset at 2026-12-01",
            "https://assay.example/account\r\n",
        ] {
            assert!(mixed.text.contains(part), "{part}: {}", mixed.text);
        }
        assert!(!mixed.text.contains("evil"));
        assert!(mixed.html.contains("“gru4rec &lt;64&gt;”"));
        assert_eq!(
            mail(of(vec![job("", false)], vec![])).subject,
            "1 job has failed"
        );
        let usage = mail(of(vec![], vec![threshold]));
        assert_eq!(usage.subject, "Your usage has reached 80 % of a limit");
        let many = News {
            has_more: true,
            ..of(vec![job("", true); 50], vec![])
        };
        let many = mail(many);
        assert_eq!(many.subject, "More than 50 jobs have finished");
        assert!(many.text.contains("The first of them:"), "{}", many.text);
    }

    #[test]
    fn invite_quotes_org_and_shows_inviter() {
        let invite = |org| {
            invite(
                "https://assay.example",
                "ada@example.org",
                org,
                "bob@example.org",
                "member",
            )
        };
        let email = invite("SECURITY ALERT”. Call us: \"now");
        assert_eq!(email.subject, "You are invited to an organization on Assay");
        assert!(
            email.text.contains("bob@example.org invites you to the organization “SECURITY ALERT'. Call us: 'now” on Assay, as member.")
        );
        // Names with links are older than the check that rejects them, or chosen by the operator.
        assert!(!invite("https://evil.example").text.contains("evil"));
    }
}
