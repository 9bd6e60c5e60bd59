//! The emails about jobs and usage that users turn on.

use assay_tests::demo_suite::SUITE_ID;
use serde_json::json;

use super::routes::world;
use super::visitor::Visitor;
use super::{files, submit_file};
use crate::events::restart;
use crate::harness::{Expect, World, long_test, one_prediction, wait_until};
use crate::mail::{Mail, mails};

/// Chooses the emails of a user on the account's page.
async fn choose(world: &World, session: &str, fields: &[(&str, &str)]) {
    let mut visitor = Visitor::signed_in(world, session);
    let page = visitor.get("/account").await;
    let saved = visitor.submit(&page, "/account/mails", fields).await;
    assert_eq!(saved.location(), "/account");
    let page = visitor.get("/account").await;
    page.assert_shows(200, "Your choice of emails is saved.");
    for (name, value) in fields {
        let chosen = format!("name=\"{name}\" value=\"{value}\" checked");
        assert!(page.text.contains(&chosen), "{chosen}: {}", page.text);
    }
}

/// Waits until a user has this many emails about jobs or usage, and returns the last one.
async fn newest(world: &World, email: &str, count: usize) -> Mail {
    let about = |mail: &Mail| mail.subject.contains("job") || mail.subject.contains("usage");
    let mut found = Vec::new();
    wait_until("an email about jobs or usage", async || {
        found = mails(world, email).into_iter().filter(about).collect();
        found.len() >= count
    })
    .await;
    assert_eq!(found.len(), count, "{found:?}");
    found.pop().unwrap()
}

/// Begins the pauses of all users, as if they got an email just now. A round between two jobs would
/// report only the first one.
async fn begin_pauses(world: &World) {
    let set = sqlx::query("update mail_preferences set next_at = now() + interval '10 minutes'");
    set.execute(&mut world.database().await).await.unwrap();
}

/// Lets the next round look for events, although the users got an email just now.
async fn end_pauses(world: &World) {
    let set = sqlx::query("update mail_preferences set next_at = now()");
    set.execute(&mut world.database().await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_get_the_emails_that_they_turn_on() {
    long_test!("waits for the mails of a minute");
    let (mut world, _name_server) = world(1, false).await;
    let member = "member@example.org";
    let invite = json!({"email": member, "role": "member"});
    world
        .owner()
        .post("/v1/invites", &invite)
        .await
        .expect_status(201);
    let member_session = world.sign_in(member).await;
    let [by_habit, _] = files(&world).await.map(|lines| lines.join("\n"));
    let earlier = submit_file(&world, SUITE_ID, "earlier", &by_habit).await;
    world.wait_until_finished(&earlier).await;

    let mut page = Visitor::signed_in(&world, &world.org.session);
    let page = page.get("/account").await;
    assert!(
        page.text.contains("value=\"none\" checked"),
        "off by default: {}",
        page.text
    );
    choose(
        &world,
        &world.org.session,
        &[("jobs", "finished"), ("thresholds", "true")],
    )
    .await;
    choose(&world, &member_session, &[("jobs", "failed")]).await;
    begin_pauses(&world).await;
    let good = submit_file(&world, SUITE_ID, "gru4rec <64>", &by_habit).await;
    let line = format!("{}\n", one_prediction()[0]);
    let bad = submit_file(&world, SUITE_ID, "twice", &line.repeat(2)).await;
    for job in [&good, &bad] {
        world.wait_until_finished(job).await;
    }
    end_pauses(&world).await;
    // Several processes look at the same time.
    let others = [
        world.stack.launch_api().unwrap(),
        world.stack.launch_api().unwrap(),
    ];
    restart(&mut world).await;
    let owner = world.org.email.clone();
    let mail = newest(&world, &owner, 1).await;
    for part in [
        "“gru4rec <64>” for suite:lunch has succeeded.",
        "“twice” for suite:lunch has failed.",
        &format!("/jobs/{good}"),
        &format!("/jobs/{bad}"),
    ] {
        assert!(mail.text.contains(part), "{part}: {}", mail.text);
    }
    assert!(
        !mail.text.contains(&earlier),
        "only later jobs: {}",
        mail.text
    );
    let mail = newest(&world, member, 1).await;
    assert_eq!(mail.subject, "1 job has failed");
    assert!(
        mail.text.contains(&bad) && !mail.text.contains(&good),
        "{}",
        mail.text
    );
    assert!(
        !mail.text.contains("%"),
        "usage is not turned on: {}",
        mail.text
    );
    drop(others);

    // Users get one email in ten minutes.
    let pause: f64 = sqlx::query_scalar(
        "select min(extract(epoch from next_at - now()))::float8 from mail_preferences",
    )
    .fetch_one(&mut world.database().await)
    .await
    .unwrap();
    assert!(pause > 300.0, "{pause}");
    let use_all = "update usage u set eval_items = p.eval_items_per_month
                   from orgs o join plans p on p.plan = o.plan where o.id = u.org_id and o.id = $1";
    let used = sqlx::query(use_all).bind(&world.org.id);
    used.execute(&mut world.database().await).await.unwrap();
    end_pauses(&world).await;
    restart(&mut world).await;
    let mail = newest(&world, &owner, 2).await;
    assert_eq!(mail.subject, "Your usage has reached 100 % of a limit");
    assert!(
        mail.text.contains("the limit eval_items_per_month"),
        "{}",
        mail.text
    );

    // An email names each job once.
    let unused = "update usage set eval_items = 0 where org_id = $1";
    let unused = sqlx::query(unused).bind(&world.org.id);
    unused.execute(&mut world.database().await).await.unwrap();
    let later = submit_file(&world, SUITE_ID, "later", &by_habit).await;
    world.wait_until_finished(&later).await;
    end_pauses(&world).await;
    restart(&mut world).await;
    let mail = newest(&world, &owner, 3).await;
    assert_eq!(mail.subject, "1 job has finished");
    assert!(
        mail.text.contains(&later) && !mail.text.contains(&good),
        "{}",
        mail.text
    );
    newest(&world, member, 1).await;
}
