//! Objects on S3, Google Cloud Storage, Azure and web servers: listed, read and written with bounded memory and time.
//!
//! The crate `object_store` signs and sends single requests. This crate adds what a reader of live runs needs: repeats
//! with one limit on concurrency per bucket, bodies that continue at the missing byte, credentials that a callback
//! renews, coalesced ranges, and a runtime that a forked child does not share.

#![deny(unsafe_code)]

mod attempt;
pub mod client;
mod counters;
pub mod credentials;
pub mod error;
mod get;
mod judge;
mod keys;
mod limiter;
mod open;
mod process;
mod ranges;
mod service;
mod settings;
pub mod store;
mod upload;
