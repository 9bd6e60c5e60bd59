//! The chart without a cluster: what it renders is run as plain processes, with its commands, variables, files and probes, and
//! ended as a cluster ends it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use assay_proto::v1;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_tests::client::Client;
use assay_tests::databases;
use assay_tests::servers::{Guarded, GuardedCommand, Servers};
use assay_tests::stack::{free_address, operate};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::clients::{Missing, made, run};
use crate::harness::{PATIENCE, ground, one_prediction, text, until, with_token};

/// What Helm makes of the chart's own values.
fn rendered() -> Result<Vec<Value>, Missing> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let helm = run(
        Command::new("bash")
            .current_dir(root)
            .args([".ci/helm", "--tool"]),
        "Helm cannot be had",
    )?
    .stdout;
    let helm = String::from_utf8_lossy(&helm).trim().to_owned();
    if helm.is_empty() {
        return Err(Missing("Helm cannot be had".into()));
    }
    let made = run(
        Command::new(helm)
            .current_dir(root)
            .args(["template", "assay", "helm"]),
        "the chart is not rendered",
    )?
    .stdout;
    Ok(serde_saphyr::from_multiple(&String::from_utf8(made).unwrap()).unwrap())
}

/// The specification of the pods of the one object of this kind and component.
fn pod<'a>(objects: &'a [Value], kind: &str, component: &str) -> (&'a Value, &'a Value) {
    let is = |object: &&Value| {
        object["kind"] == kind
            && object["metadata"]["labels"]["app.kubernetes.io/component"] == component
    };
    let object = objects
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("no {kind} of {component}"));
    (object, &object["spec"]["template"]["spec"])
}

/// A pod that was given a folder in place of a root file system.
struct Pod {
    process: Guarded,
    container: Value,
    folder: PathBuf,
    /// By the port of the container.
    addresses: BTreeMap<String, SocketAddr>,
}

impl Pod {
    /// Starts a pod's one container. `secret` is what a secret holds, by its name.
    fn start(spec: &Value, servers: &Servers, secret: &dyn Fn(&str) -> String) -> Self {
        let container = spec["containers"][0].clone();
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
        let folder = servers.folder().join(databases::fresh_name("pod"));
        std::fs::create_dir_all(folder.join("work")).unwrap();
        for mount in container["volumeMounts"].as_array().unwrap() {
            let volume = spec["volumes"]
                .as_array()
                .unwrap()
                .iter()
                .find(|volume| volume["name"] == mount["name"])
                .unwrap();
            let path = folder.join(text(&mount["mountPath"]).trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                // The same one for all pods.
                let shared = servers.folder().join(claim);
                std::fs::create_dir_all(&shared).unwrap();
                std::os::unix::fs::symlink(shared, path).unwrap();
                continue;
            }
            std::fs::create_dir(&path).unwrap();
            for source in volume["projected"]["sources"]
                .as_array()
                .into_iter()
                .flatten()
            {
                for item in source["secret"]["items"].as_array().unwrap() {
                    std::fs::write(
                        path.join(text(&item["path"])),
                        secret(&text(&source["secret"]["name"])),
                    )
                    .unwrap();
                }
            }
        }
        let mut addresses = BTreeMap::new();
        let mut command = GuardedCommand::new(match container["command"][0].as_str().unwrap() {
            "assay-api" => ground().binaries.api.clone(),
            "assay-worker" => ground().binaries.worker.clone(),
            other => panic!("{other}"),
        });
        command.args = container["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|argument| text(argument).into())
            .collect();
        command.clear_env = true;
        for variable in container["env"].as_array().unwrap() {
            let mut value = text(&variable["value"]);
            if ["/etc/", "/var/"]
                .iter()
                .any(|begin| value.starts_with(begin))
            {
                value = format!("{}{value}", folder.display());
            } else if let Some(port) = value.strip_prefix("0.0.0.0:") {
                // Pods have their own addresses; here they share one.
                let address = free_address().unwrap();
                addresses.insert(port.to_owned(), address);
                value = address.to_string();
            }
            command
                .env
                .push((text(&variable["name"]).into(), value.into()));
        }
        command.current_dir = Some(folder.join("work"));
        command.log = Some(folder.join("log"));
        command.run_folder = Some(servers.folder().to_path_buf());
        Self {
            process: Guarded::spawn(&command).unwrap(),
            container,
            folder,
            addresses,
        }
    }

    fn port(&self, name: &str) -> SocketAddr {
        let ports = self.container["ports"].as_array().unwrap();
        let port =
            ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].to_string();
        self.addresses[&port]
    }

    /// Asks as a kubelet does. Whether the answer is a good one.
    async fn probe(&self, kind: &str) -> bool {
        let probe = &self.container[kind];
        let url = format!(
            "http://{}{}",
            self.port(probe["httpGet"]["port"].as_str().unwrap()),
            text(&probe["httpGet"]["path"])
        );
        let patience = Duration::from_secs(probe["timeoutSeconds"].as_u64().unwrap());
        let answer = tokio::time::timeout(patience, reqwest::get(url)).await;
        answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status().is_success()))
    }

    /// Waits as long as the startup probe allows, and then until the pod is ready.
    async fn started(&self) {
        let probe = &self.container["startupProbe"];
        let patience = Duration::from_secs(
            probe["failureThreshold"].as_u64().unwrap() * probe["periodSeconds"].as_u64().unwrap(),
        );
        let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let began = Instant::now();
        while !(self.probe("startupProbe").await && self.probe("readinessProbe").await) {
            assert!(
                began.elapsed() < patience && self.process.try_wait().is_none(),
                "{}",
                log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(self.probe("livenessProbe").await);
    }

    /// Sends SIGTERM, and waits as long as the cluster would before it kills. It ends well, and has left nothing where it was
    /// given no volume.
    fn end(&self, spec: &Value) {
        let grace = spec["terminationGracePeriodSeconds"].as_u64().unwrap();
        let slept = self.container["lifecycle"]["preStop"]["sleep"]["seconds"]
            .as_u64()
            .unwrap_or(0);
        let drain = self.container["env"]
            .as_array()
            .unwrap()
            .iter()
            .find(|variable| variable["name"] == "ASSAY_DRAIN_SECONDS")
            .unwrap();
        assert!(
            slept + text(&drain["value"]).parse::<u64>().unwrap() < grace,
            "what drains is killed"
        );
        self.process.stop();
        let ended = self.process.wait(Duration::from_secs(grace - slept));
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        assert_eq!(
            std::fs::read_dir(self.folder.join("work")).unwrap().count(),
            0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chart_renders_works_as_plain_processes_from_the_migration_to_the_end() {
    let Some(objects) = made(rendered).await else {
        return;
    };
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    let name = databases::fresh_name("rehearsal");
    databases::create(&servers, &name, None).await.unwrap();
    let redis = servers.redis_url().to_owned();

    // The hook before anything else, on an empty database; a second time, as with each upgrade.
    let owner_url = servers.postgres_url(&name);
    let (_, migration) = pod(&objects, "Job", "migration");
    for _ in 0..2 {
        let job = Pod::start(migration, &servers, &|_| owner_url.clone());
        assert!(
            job.process
                .wait(Duration::from_secs(60))
                .is_some_and(|status| status.success())
        );
    }
    let roles = databases::roles(&servers, &name).await.unwrap();
    let secret = |name: &str| match name {
        "assay-database-api" => roles.api_url.clone(),
        "assay-database-worker" => roles.worker_url.clone(),
        "assay-redis" => redis.clone(),
        other => panic!("a secret that is not asked for: {other}"),
    };
    let (deployment, api_spec) = pod(&objects, "Deployment", "api");
    let apis: Vec<Pod> = (0..deployment["spec"]["replicas"].as_u64().unwrap())
        .map(|_| Pod::start(api_spec, &servers, &secret))
        .collect();
    let (deployment, worker_spec) = pod(&objects, "Deployment", "worker");
    let workers: Vec<Pod> = (0..deployment["spec"]["replicas"].as_u64().unwrap())
        .map(|_| Pod::start(worker_spec, &servers, &secret))
        .collect();
    assert!(
        apis.len() >= 2 && workers.len() >= 2,
        "one of each is no installation that can be upgraded"
    );
    for pod in apis.iter().chain(&workers) {
        pod.started().await;
    }

    // The whole flow, on either wire.
    let env = BTreeMap::from([("ASSAY_DATABASE_URL".to_owned(), owner_url.clone())]);
    let operator = async |arguments: &[&str]| {
        operate(&ground().binaries.api, &env, arguments)
            .await
            .unwrap()
    };
    let lunch = servers.folder().join("lunch");
    assay_tests::demo_suite::write(&lunch).unwrap();
    operator(&["suite", "publish", lunch.to_str().unwrap()]).await;
    let org = operator(&[
        "org",
        "create",
        "--name",
        "Acme",
        "--plan",
        "team",
        "--owner-email",
        "owner@example.org",
    ])
    .await;
    let key = operator(&[
        "key",
        "create",
        "--org",
        &text(&org["org_id"]),
        "--name",
        "ci",
    ])
    .await;
    let clients: Vec<Client> = apis
        .iter()
        .map(|api| {
            Client::new(
                format!("http://{}", api.port("http")),
                Some(&text(&key["key"])),
            )
        })
        .collect();
    let submit = async |client: &Client| {
        let queued = client
            .post(
                "/v1/evals",
                &json!({"suite_id": "suite:lunch", "predictions": one_prediction()}),
            )
            .await
            .unwrap();
        assert_eq!(queued.status, 202, "{}", queued.body);
        text(&queued.body["id"])
    };
    // Workers that are told to end while one of them is in the middle of a job, held where it reads answers.
    let mut holding = databases::connect(&owner_url).await.unwrap();
    sqlx::raw_sql("begin; lock table suite_answers in access exclusive mode")
        .execute(&mut holding)
        .await
        .unwrap();
    let job_id = submit(&clients[0]).await;
    let path = format!("/v1/jobs/{job_id}");
    until("the job", PATIENCE, async || {
        clients[0].get(&path).await.unwrap().body["status"] == "running"
    })
    .await;
    workers.iter().for_each(|worker| worker.process.stop());
    sqlx::Connection::close(holding).await.unwrap();
    workers.iter().for_each(|worker| worker.end(worker_spec));
    let job = clients[0]
        .finished(&job_id, PATIENCE, &|_| {})
        .await
        .unwrap();
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&json!("succeeded"), &json!(1)),
        "{job}"
    );

    let worker = Pod::start(worker_spec, &servers, &secret);
    worker.started().await;
    for client in &clients {
        let job = client
            .finished(&submit(client).await, PATIENCE, &|_| {})
            .await
            .unwrap();
        assert_eq!(job["status"], "succeeded", "{job}");
    }
    let channel = Channel::from_shared(format!("http://{}", apis[0].port("http")))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let me = MeServiceClient::new(channel)
        .get_me(with_token(v1::GetMeRequest {}, &text(&key["key"])))
        .await
        .unwrap();
    assert!(me.get_ref().me.is_some());

    // An api is told to end while callers go on at the other.
    apis[0].process.stop();
    until("the first api's farewell", PATIENCE, async || {
        !apis[0].probe("readinessProbe").await
    })
    .await;
    let job = clients[1]
        .finished(&submit(&clients[1]).await, PATIENCE, &|_| {})
        .await
        .unwrap();
    assert_eq!(job["status"], "succeeded", "{job}");
    apis.iter().for_each(|api| api.end(api_spec));
    worker.end(worker_spec);
}
