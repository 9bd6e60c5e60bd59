//! An HTTP/2 connection's budget for frames that carry no request and no data: each costs this
//! process work, and the client nothing.

use std::time::Duration;

use tokio::time::Instant;

/// The bytes that a client sends before its first frame (RFC 9113, section 3.4).
const PREFACE: usize = 24;
/// The bytes before a frame's payload.
const HEADER: usize = 9;
/// The frames that a connection can send at once.
const BURST: f64 = 2000.0;
/// The frames in a second that a connection can send after that.
const PER_SECOND: f64 = 200.0;
/// The longest pause in reading.
const PAUSE_MAX: Duration = Duration::from_secs(5);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Counts a connection's control frames as its bytes arrive.
pub(super) struct ControlFrames {
    /// The preface's remaining bytes.
    preface: usize,
    /// A frame header's part that has arrived.
    header: [u8; HEADER],
    arrived: usize,
    /// The payload's remaining bytes.
    payload: usize,
    budget: f64,
    refilled_at: Instant,
}

impl ControlFrames {
    pub(super) fn new() -> Self {
        Self {
            preface: PREFACE,
            header: [0; HEADER],
            arrived: 0,
            payload: 0,
            budget: BURST,
            refilled_at: Instant::now(),
        }
    }

    /// Counts the frames in these bytes at this time. Returns the frame count above the budget.
    pub(super) fn excess(&mut self, bytes: &[u8], now: Instant) -> u32 {
        let frames = self.control_frames(bytes);
        if frames == 0 {
            return 0;
        }
        let refill = (now - self.refilled_at).as_secs_f64() * PER_SECOND;
        self.refilled_at = now;
        self.budget = (self.budget + refill).min(BURST) - f64::from(frames);
        (-self.budget).max(0.0).ceil() as u32
    }

    /// Returns the time for which a connection is not read that has exceeded its budget by this many
    /// frames: the pause pays for them.
    pub(super) fn pause_for(excess: u32) -> Duration {
        Duration::from_secs_f64(f64::from(excess) / PER_SECOND).min(PAUSE_MAX)
    }

    /// Returns how many control frames have a header that ends in these bytes.
    fn control_frames(&mut self, mut bytes: &[u8]) -> u32 {
        let mut frames = 0;
        while !bytes.is_empty() {
            let skipped = (self.preface + self.payload).min(bytes.len());
            let preface_bytes = skipped.min(self.preface);
            self.preface -= preface_bytes;
            self.payload -= skipped - preface_bytes;
            bytes = &bytes[skipped..];
            let taken = (HEADER - self.arrived).min(bytes.len());
            let (part, rest) = bytes.split_at(taken);
            self.header[self.arrived..self.arrived + taken].copy_from_slice(part);
            self.arrived += taken;
            bytes = rest;
            if self.arrived == HEADER {
                self.arrived = 0;
                let [a, b, c, kind, ..] = self.header;
                self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
                // The library limits resets, and window updates cost little and follow the data.
                let is_control = match kind {
                    HEADERS | CONTINUATION | RST_STREAM | WINDOW_UPDATE => false,
                    DATA => self.payload == 0,
                    _ => true,
                };
                frames += u32::from(is_control);
            }
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, 0, 0, 0, 0, 1];
        frame.resize(HEADER + payload, 7);
        frame
    }

    #[test]
    fn frames_are_counted_however_the_bytes_are_cut() {
        let ping = frame(6, 8);
        let mut bytes = vec![b'P'; PREFACE];
        for part in [
            &frame(4, 18),
            &frame(HEADERS, 100),
            &ping,
            &frame(DATA, 70_000),
            &ping,
            &frame(DATA, 0),
        ] {
            bytes.extend_from_slice(part);
        }
        for cut in [1, 2, 7, 9, 10, 1000, bytes.len()] {
            let mut frames = ControlFrames::new();
            let counted: u32 = bytes
                .chunks(cut)
                .map(|part| frames.control_frames(part))
                .sum();
            assert_eq!(counted, 4, "{cut}");
        }
    }

    #[test]
    fn flood_is_slowed_down() {
        let mut frames = ControlFrames::new();
        let now = frames.refilled_at;
        let later = now + Duration::from_secs(1);
        let pings = |count: usize| frame(6, 8).repeat(count);
        let bytes = [
            (vec![0; PREFACE], now),
            (pings(1000), now),
            (pings(1000), now),
            (pings(10), now),
            (pings(150), later),
            (pings(100), later),
        ];
        let above: Vec<u32> = bytes
            .iter()
            .map(|(bytes, at)| frames.excess(bytes, *at))
            .collect();
        assert_eq!(above, [0, 0, 0, 10, 0, 60]);
    }
}
