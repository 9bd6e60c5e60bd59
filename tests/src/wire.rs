//! The way to a private Redis, which can be cut.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use crate::servers::{Servers, Trouble};

/// While it is cut, nothing is refused and nothing is answered, as when packets are lost. A connection that was open then, or
/// was opened meanwhile, stays dead; one that is opened later is not.
pub struct Wire {
    address: SocketAddr,
    cut: watch::Sender<bool>,
}

impl Wire {
    /// One that is not cut yet.
    ///
    /// # Errors
    /// When the server is not private, or there is no port.
    pub fn to(servers: &Servers) -> Result<Self, Trouble> {
        let socket = servers.redis_socket()?.to_path_buf();
        let trouble = || Trouble::because("cannot listen before Redis");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(trouble())?;
        listener.set_nonblocking(true).map_err(trouble())?;
        let address = listener.local_addr().map_err(trouble())?;
        let listener = TcpListener::from_std(listener).map_err(trouble())?;
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(connect(caller, socket.clone(), is_cut.clone()));
            }
        });
        Ok(Self { address, cut })
    }

    /// The address of Redis by this way.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Cuts it, or mends it.
    pub fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

async fn connect(mut caller: TcpStream, socket: PathBuf, mut is_cut: watch::Receiver<bool>) {
    // Redis may just have ended.
    let Ok(mut redis) = UnixStream::connect(socket).await else { return };
    let dead = tokio::select! {
        biased;
        cut = is_cut.wait_for(|cut| *cut) => cut.is_ok(),
        _ = tokio::io::copy_bidirectional(&mut caller, &mut redis) => false,
    };
    if dead {
        // Both ends stay open, and nobody hears of the other again.
        std::future::pending::<()>().await;
    }
}
