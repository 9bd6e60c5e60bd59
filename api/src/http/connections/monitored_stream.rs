//! A connection's socket, which reports when bytes arrive and can be paused.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::activity::ConnectionActivity;
use super::control_frames::ControlFrames;

/// A socket that reports incoming bytes to the connection's activity.
pub(super) struct MonitoredStream {
    stream: TcpStream,
    activity: Arc<ConnectionActivity>,
    /// The present pause's timer.
    pause: Option<Pin<Box<Sleep>>>,
    /// The budget for control frames; `None` for HTTP/1, and for a proxy, whose connection carries
    /// many clients' frames.
    control_frames: Option<ControlFrames>,
    /// The pause's end for exceeding that budget.
    slowed_until: Option<Instant>,
}

impl MonitoredStream {
    pub(super) fn new(stream: TcpStream, activity: Arc<ConnectionActivity>) -> Self {
        Self {
            stream,
            control_frames: activity.counts_control_frames().then(ControlFrames::new),
            activity,
            pause: None,
            slowed_until: None,
        }
    }
}

impl AsyncRead for MonitoredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let slowed_until = self.slowed_until.filter(|until| *until > Instant::now());
        if let Some(until) = self.activity.paused_until().max(slowed_until) {
            let pause = self
                .pause
                .get_or_insert_with(|| Box::pin(sleep_until(until)));
            pause.as_mut().reset(until);
            ready!(pause.as_mut().poll(cx));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.record_incoming();
            let new = &buffer.filled()[before..];
            let now = Instant::now();
            let excess = self
                .control_frames
                .as_mut()
                .map_or(0, |frames| frames.excess(new, now));
            if excess > 0 {
                self.slowed_until = Some(now + ControlFrames::pause_for(excess));
            }
        }
        read
    }
}

impl AsyncWrite for MonitoredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
