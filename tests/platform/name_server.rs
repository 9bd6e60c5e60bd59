//! A name server of the tests' own, on loopback.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{Name, RData, Record};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Answers questions for TXT records. Dropping it ends it.
pub struct NameServer {
    /// Where it listens.
    pub address: SocketAddr,
    texts: Texts,
    asked: Asked,
    serving: JoinHandle<()>,
}

/// The records by name, each in pieces.
type Texts = Arc<Mutex<HashMap<Name, Vec<Vec<String>>>>>;

/// How often each name was asked for.
type Asked = Arc<Mutex<HashMap<Name, usize>>>;

impl NameServer {
    /// Starts one that knows nothing.
    pub async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let texts = Arc::new(Mutex::new(HashMap::new()));
        let asked = Asked::default();
        let serving = tokio::spawn(serve(socket, Arc::clone(&texts), Arc::clone(&asked)));
        Self {
            address,
            texts,
            asked,
            serving,
        }
    }

    /// Shows nothing at a name any more.
    pub fn hide(&self, name: &str) {
        self.texts
            .lock()
            .unwrap()
            .remove(&Name::from_ascii(format!("{name}.")).unwrap());
    }

    /// How often a name was asked for.
    pub fn asked(&self, name: &str) -> usize {
        self.asked
            .lock()
            .unwrap()
            .get(&Name::from_ascii(format!("{name}.")).unwrap())
            .copied()
            .unwrap_or(0)
    }

    /// Shows one more record, of these pieces.
    pub fn show(&self, name: &str, pieces: &[&str]) {
        let name = Name::from_ascii(format!("{name}.")).unwrap();
        let pieces = pieces.iter().map(|piece| (*piece).to_owned()).collect();
        self.texts
            .lock()
            .unwrap()
            .entry(name)
            .or_default()
            .push(pieces);
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(socket: UdpSocket, texts: Texts, counts: Asked) {
    let mut buffer = [0; 4096];
    loop {
        let (n, from) = socket.recv_from(&mut buffer).await.unwrap();
        let asked = Message::from_vec(&buffer[..n]).unwrap();
        let mut answer = Message::response(asked.metadata.id, OpCode::Query);
        answer.metadata.recursion_available = true;
        for query in &asked.queries {
            answer.add_query(query.clone());
            let name = query.name().to_lowercase();
            *counts.lock().unwrap().entry(name.clone()).or_default() += 1;
            if name.to_ascii().contains("broken") {
                answer.metadata.response_code = ResponseCode::ServFail;
                continue;
            }
            match texts.lock().unwrap().get(&name) {
                None => answer.metadata.response_code = ResponseCode::NXDomain,
                Some(records) => {
                    let record = |pieces: &Vec<String>| {
                        Record::from_rdata(
                            query.name().clone(),
                            3600,
                            RData::TXT(TXT::new(pieces.clone())),
                        )
                    };
                    answer.add_answers(records.iter().map(record));
                }
            }
        }
        socket
            .send_to(&answer.to_vec().unwrap(), from)
            .await
            .unwrap();
    }
}
