// SPDX-License-Identifier: Apache-2.0

//! The plugin in unmodified NIXL processes: the wheels of the test environment (`cargo xtask setup`).

mod agents;
mod kit;
mod overload;
