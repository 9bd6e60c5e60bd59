//! A DNS server for tests, on the loopback interface.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// A server for TXT, A and AAAA records. Dropping it stops it.
pub struct NameServer {
    /// The server's UDP address.
    pub address: SocketAddr,
    texts: Texts,
    hosts: Hosts,
    asked: Asked,
    serving: JoinHandle<()>,
}

/// TXT records by name; each record is a string list.
type Texts = Arc<Mutex<HashMap<Name, Vec<Vec<String>>>>>;

/// Addresses by name, for each query in turn; the last ones for all further queries.
type Hosts = Arc<Mutex<HashMap<Name, Vec<Vec<IpAddr>>>>>;

/// Queries by name.
type Asked = Arc<Mutex<HashMap<Name, usize>>>;

impl NameServer {
    /// Starts a server without records.
    pub async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let texts = Arc::new(Mutex::new(HashMap::new()));
        let hosts = Hosts::default();
        let asked = Asked::default();
        let records = (Arc::clone(&texts), Arc::clone(&hosts));
        let serving = tokio::spawn(serve(socket, records, Arc::clone(&asked)));
        Self {
            address,
            texts,
            hosts,
            asked,
            serving,
        }
    }

    /// Removes all records for a name.
    pub fn hide(&self, name: &str) {
        self.texts
            .lock()
            .unwrap()
            .remove(&Name::from_ascii(format!("{name}.")).unwrap());
    }

    /// Returns the number of queries for a name.
    pub fn asked(&self, name: &str) -> usize {
        self.asked
            .lock()
            .unwrap()
            .get(&Name::from_ascii(format!("{name}.")).unwrap())
            .copied()
            .unwrap_or(0)
    }

    /// Sets a name's addresses: the first ones for the first query, and so on.
    pub fn resolve(&self, name: &str, addresses: &[&[IpAddr]]) {
        let name = Name::from_ascii(format!("{name}.")).unwrap();
        let addresses = addresses.iter().map(|one| one.to_vec()).collect();
        self.hosts.lock().unwrap().insert(name, addresses);
    }

    /// Adds a record with these strings.
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

async fn serve(socket: UdpSocket, (texts, hosts): (Texts, Hosts), counts: Asked) {
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
            if let Some(addresses) = hosts.lock().unwrap().get_mut(&name) {
                let record = |address: &IpAddr| {
                    let data = match address {
                        IpAddr::V4(address) => RData::A((*address).into()),
                        IpAddr::V6(address) => RData::AAAA((*address).into()),
                    };
                    Record::from_rdata(query.name().clone(), 0, data)
                };
                let records = addresses[0].iter().map(record);
                let records: Vec<_> = records
                    .filter(|record| record.record_type() == query.query_type())
                    .collect();
                if query.query_type() == RecordType::A && addresses.len() > 1 {
                    addresses.remove(0);
                }
                answer.add_answers(records);
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
