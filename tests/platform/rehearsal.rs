//! The Helm chart without a cluster: runs the rendered pods as plain processes, with their
//! commands, variables, files and probes, and stops them as a cluster does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use assay_proto::v1;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_tests::client::Client;
use assay_tests::databases;
use assay_tests::servers::{Guarded, GuardedCommand, Servers};
use assay_tests::stack::{free_address, operate};
use assay_tests::wait::wait_timeout;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::clients::{MissingTool, prepare, run};
use crate::harness::{Expect, ground, long_test, one_prediction, string, wait_until, with_token};
use crate::receiver::Receiver;
use crate::serving::package;
use crate::webhooks::Webhook;

/// The transparency log's name.
const ORIGIN: &str = "assay.example/log";

/// Returns the objects that Helm renders from the chart's default values.
fn rendered() -> Result<Vec<Value>, MissingTool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let helm = run(
        Command::new("bash")
            .current_dir(root)
            .args([".ci/helm", "--tool"]),
        "cannot get Helm",
    )?
    .stdout;
    let helm = String::from_utf8_lossy(&helm).trim().to_owned();
    if helm.is_empty() {
        return Err(MissingTool("Helm cannot be had".into()));
    }
    let made = run(
        Command::new(helm)
            .current_dir(root)
            .args(["template", "assay", "helm"])
            .args(["--set", "deliverer.enabled=true"])
            .args(["--set", "webhooks.existingSecret=assay-webhooks"])
            .args(["--set", "webhooks.allowHttp=true"])
            .args(["--set", "webhooks.networks={127.0.0.0/8}"])
            .args(["--set", "receiptLog.enabled=true"])
            .args(["--set", &format!("receiptLog.origin={ORIGIN}")])
            .args(["--set", "checker.enabled=true"]),
        "cannot render the chart",
    )?
    .stdout;
    Ok(serde_saphyr::from_multiple(&String::from_utf8(made).unwrap()).unwrap())
}

/// Returns the pod specification of the only object with this kind and component.
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

/// Returns the pod specification with an engine's address instead of its Service's name,
/// which only a cluster resolves.
fn with_engine(spec: &Value, engine: SocketAddr) -> Value {
    let mut spec = spec.clone();
    let engines = spec["containers"][0]["env"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .find(|variable| variable["name"] == "ASSAY_ENGINES")
        .unwrap();
    let rendered = string(&engines["value"]);
    assert!(
        rendered.starts_with("default=http://assay-engine.") && rendered.ends_with(".svc:9500"),
        "{rendered}"
    );
    engines["value"] = json!(format!("default=http://{engine}"));
    spec
}

/// Returns what a command of the API's binary prints that needs no settings.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(&ground().binaries.api)
        .env_clear()
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A pod that runs as a process, with a folder as its root file system.
struct Pod {
    process: Guarded,
    container: Value,
    folder: PathBuf,
    /// The local address of each container port.
    addresses: BTreeMap<String, SocketAddr>,
}

impl Pod {
    /// Starts the only container of a pod. `secret` returns the content of a secret by its name.
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
            let path = folder.join(string(&mount["mountPath"]).trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                // All pods share this volume.
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
                        path.join(string(&item["path"])),
                        secret(&string(&source["secret"]["name"])),
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
            .map(|argument| string(argument).into())
            .collect();
        command.clear_env = true;
        for variable in container["env"].as_array().unwrap() {
            let mut value = string(&variable["value"]);
            if ["/etc/", "/var/"]
                .iter()
                .any(|begin| value.starts_with(begin))
            {
                value = format!("{}{value}", folder.display());
            } else if let Some(port) = value.strip_prefix("0.0.0.0:") {
                // Pods have addresses of their own; here all share one.
                let address = free_address().unwrap();
                addresses.insert(port.to_owned(), address);
                value = address.to_string();
            }
            command
                .env
                .push((string(&variable["name"]).into(), value.into()));
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

    /// Calls a probe as a kubelet does. Returns `true` if it succeeds.
    async fn probe(&self, kind: &str) -> bool {
        let probe = &self.container[kind];
        let url = format!(
            "http://{}{}",
            self.port(probe["httpGet"]["port"].as_str().unwrap()),
            string(&probe["httpGet"]["path"])
        );
        let timeout = Duration::from_secs(probe["timeoutSeconds"].as_u64().unwrap());
        let response = tokio::time::timeout(timeout, reqwest::get(url)).await;
        response.is_ok_and(|response| response.is_ok_and(|response| response.status().is_success()))
    }

    /// Waits until the startup probe succeeds, and then until the pod is ready and alive.
    async fn wait_until_ready(&self) {
        let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        wait_until("the success of all probes", async || {
            assert!(self.process.try_wait().is_none(), "{}", log());
            self.probe("startupProbe").await
                && self.probe("readinessProbe").await
                && self.probe("livenessProbe").await
        })
        .await;
    }

    /// Sends SIGTERM. Asserts that the grace period of the pod is longer than the drain, that the
    /// process exits with success, and that it has written nothing outside its volumes.
    fn terminate(&self, spec: &Value) {
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
            slept + string(&drain["value"]).parse::<u64>().unwrap() < grace,
            "the grace period is shorter than the drain"
        );
        self.process.stop();
        let ended = self.process.wait(wait_timeout());
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        assert_eq!(
            std::fs::read_dir(self.folder.join("work")).unwrap().count(),
            0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_chart_works_as_plain_processes() {
    long_test!("renders the chart with Helm and starts all its processes");
    let Some(objects) = prepare(rendered).await else {
        return;
    };
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    let name = databases::fresh_name("rehearsal");
    databases::create(&servers, &name, None).await.unwrap();
    let redis = servers.redis_url().to_owned();

    // The migration hook runs first, on an empty database, and again, as with each upgrade.
    let owner_url = servers.postgres_url(&name);
    let (_, migration) = pod(&objects, "Job", "migration");
    for _ in 0..2 {
        let job = Pod::start(migration, &servers, &|_| owner_url.clone());
        assert!(
            job.process
                .wait(wait_timeout())
                .is_some_and(|status| status.success())
        );
    }
    let roles = databases::roles(&servers, &name).await.unwrap();
    let receipt_keys = printed(&["receipt-key", "generate"]);
    // As in the operator's guide.
    let log_key = printed(&["log", "keygen", "--origin", ORIGIN])
        .split(['"', ' ', '\n'])
        .find(|word| word.starts_with("PRIVATE+KEY+"))
        .unwrap()
        .to_owned();
    let secret = |name: &str| match name {
        "assay-database-api" => roles.api_url.clone(),
        "assay-database-worker" => roles.worker_url.clone(),
        "assay-database-checker" => roles.checker_url.clone(),
        "assay-database-deliverer" => roles.delivery_url.clone(),
        "assay-database-receipt-log" => roles.log_url.clone(),
        "assay-webhooks" => STANDARD.encode([7; 32]),
        "assay-receipt-keys" => receipt_keys.clone(),
        "assay-log-key" => log_key.clone(),
        "assay-redis" => redis.clone(),
        other => panic!("unexpected secret: {other}"),
    };
    // The engines get no secret. They wait for the first API process, which marks the shared volume.
    let (deployment, engine_spec) = pod(&objects, "Deployment", "engine");
    let engines: Vec<Pod> = (0..deployment["spec"]["replicas"].as_u64().unwrap())
        .map(|_| {
            Pod::start(engine_spec, &servers, &|name| {
                panic!("unexpected secret: {name}")
            })
        })
        .collect();
    let engine = engines[0].port("grpc");
    let (deployment, api_spec) = pod(&objects, "Deployment", "api");
    let api_spec = &with_engine(api_spec, engine);
    let apis: Vec<Pod> = (0..deployment["spec"]["replicas"].as_u64().unwrap())
        .map(|_| Pod::start(api_spec, &servers, &secret))
        .collect();
    let (deployment, worker_spec) = pod(&objects, "Deployment", "worker");
    let worker_spec = &with_engine(worker_spec, engine);
    let workers: Vec<Pod> = (0..deployment["spec"]["replicas"].as_u64().unwrap())
        .map(|_| Pod::start(worker_spec, &servers, &secret))
        .collect();
    assert!(
        apis.len() >= 2 && workers.len() >= 2 && engines.len() >= 2,
        "an upgrade without downtime needs two of each"
    );
    let (deployment, deliverer_spec) = pod(&objects, "Deployment", "deliverer");
    let deliverers: Vec<Pod> = (0..deployment["spec"]["replicas"].as_u64().unwrap())
        .map(|_| Pod::start(deliverer_spec, &servers, &secret))
        .collect();
    let (deployment, log_spec) = pod(&objects, "Deployment", "receipt-log");
    let receipt_logs: Vec<Pod> = (0..deployment["spec"]["replicas"].as_u64().unwrap())
        .map(|_| Pod::start(log_spec, &servers, &secret))
        .collect();
    assert!(receipt_logs.len() >= 2, "one must take over from the other");
    let (_, checker_spec) = pod(&objects, "Deployment", "checker");
    let checker = Pod::start(checker_spec, &servers, &secret);
    let pods = apis.iter().chain(&workers).chain(&engines);
    let pods = pods.chain(&deliverers).chain(&receipt_logs);
    for pod in pods.chain([&checker]) {
        pod.wait_until_ready().await;
    }

    // The complete flow, over both protocols.
    let artifacts = servers.folder().join("assay-artifacts");
    let env = BTreeMap::from([
        ("ASSAY_DATABASE_URL".to_owned(), owner_url.clone()),
        (
            "ASSAY_ARTIFACTS".to_owned(),
            artifacts.display().to_string(),
        ),
        (
            "ASSAY_ENGINES".to_owned(),
            format!("default=http://{engine}"),
        ),
    ]);
    let operator = async |arguments: &[&str]| {
        operate(&ground().binaries.api, &env, arguments)
            .await
            .unwrap()
    };
    let lunch = servers.folder().join("lunch");
    assay_tests::demo_suite::write(&lunch).unwrap();
    operator(&["suite", "publish", lunch.to_str().unwrap()]).await;
    operator(&["model", "publish", package("embedded").to_str().unwrap()]).await;
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
        &string(&org["org_id"]),
        "--name",
        "ci",
    ])
    .await;
    let clients: Vec<Client> = apis
        .iter()
        .map(|api| {
            Client::new(
                format!("http://{}", api.port("http")),
                Some(&string(&key["key"])),
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
            .expect_status(202);
        string(&queued.body["id"])
    };
    // Workers get SIGTERM while one of them is in the middle of a job, blocked where it reads
    // answers.
    let mut holding = databases::connect(&owner_url).await.unwrap();
    sqlx::raw_sql("begin; lock table suite_answers in access exclusive mode")
        .execute(&mut holding)
        .await
        .unwrap();
    let job_id = submit(&clients[0]).await;
    let path = format!("/v1/jobs/{job_id}");
    wait_until("the job", async || {
        clients[0].get(&path).await.unwrap().body["status"] == "running"
    })
    .await;
    workers.iter().for_each(|worker| worker.process.stop());
    sqlx::Connection::close(holding).await.unwrap();
    workers
        .iter()
        .for_each(|worker| worker.terminate(worker_spec));
    let job = clients[0]
        .wait_until_finished(&job_id, &|_| {})
        .await
        .unwrap();
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&json!("succeeded"), &json!(1)),
        "{job}"
    );

    let worker = Pod::start(worker_spec, &servers, &secret);
    worker.wait_until_ready().await;
    for client in &clients {
        let job = client
            .wait_until_finished(&submit(client).await, &|_| {})
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
        .get_me(with_token(v1::GetMeRequest {}, &string(&key["key"])))
        .await
        .unwrap();
    assert!(me.get_ref().me.is_some());

    let sequence = json!({"sequence_id": "p", "events": [{"item_id": "dish-03"}]});
    let body = json!({"sequences": [sequence]});
    for client in &clients {
        let predicted = client.post("/v1/models/embedded/predict", &body).await;
        let predicted = predicted.unwrap();
        assert_eq!(predicted.status, 200, "{}", predicted.body);
    }

    // Webhooks, which the deliverers make: the test's receiver is in an allowed network.
    let email = ["session", "create", "--email", "owner@example.org"];
    let session = operator(&email).await;
    let owner = Client::new(
        format!("http://{}", apis[0].port("http")),
        Some(&string(&session["token"])),
    );
    let receiver = Receiver::start().await;
    let webhook = Webhook::create(&owner, &receiver.url("/hook"), &["job.succeeded"]).await;
    submit(&clients[0]).await;
    receiver.wait_for("/hook", 1).await;
    webhook.ping().await;
    receiver.wait_for("/hook", 2).await;
    deliverers
        .iter()
        .for_each(|deliverer| deliverer.terminate(deliverer_spec));

    // Receipts, which the receipt logs sign: also the second one, after the first one has stopped.
    for receipt_log in &receipt_logs {
        let path = format!("/v1/jobs/{}/receipt", submit(&clients[0]).await);
        wait_until("the entry of the receipt", async || {
            clients[1].get(&path).await.unwrap().body["log"]["index"].is_u64()
        })
        .await;
        receipt_log.terminate(log_spec);
    }
    let checkpoint = format!("http://{}/log/checkpoint", apis[0].port("http"));
    let checkpoint = reqwest::get(checkpoint).await.unwrap().text().await;
    assert_eq!(checkpoint.unwrap().lines().next(), Some(ORIGIN));

    // An API process gets SIGTERM while callers use the other one.
    apis[0].process.stop();
    wait_until("the exit of the first API process", async || {
        !apis[0].probe("readinessProbe").await
    })
    .await;
    let job = clients[1]
        .wait_until_finished(&submit(&clients[1]).await, &|_| {})
        .await
        .unwrap();
    assert_eq!(job["status"], "succeeded", "{job}");
    apis.iter().for_each(|api| api.terminate(api_spec));
    worker.terminate(worker_spec);
    engines
        .iter()
        .for_each(|engine| engine.terminate(engine_spec));
    checker.terminate(checker_spec);
}
