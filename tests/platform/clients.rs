//! Other people's clients.
