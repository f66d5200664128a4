// SPDX-License-Identifier: Apache-2.0

//! Options of the `cluster` extension.

use tidegate_kafka::KafkaConfig;
use tidegate_nats::NatsConfig;

use super::election::LeaderOptions;
use super::engines::{DirectOptions, LocalConfig};
use crate::config::{Node, Problems};

/// The most bytes of the name of a cluster. It is a part of every subject and of names in the store.
const MAX_NAME_BYTES: usize = 64;

/// The most partitions.
const MAX_PARTITIONS: u16 = 99;

crate::options! {
    /// Options of the `cluster` extension.
    pub struct ClusterConfig {
        /// Name of the cluster: 1 to 64 letters, digits, `-` and `_`. All gateways of the cluster have the same.
        pub name: String = required,
        /// Number of partitions, 1 to 99. All gateways of the cluster have the same.
        pub partitions: u16 = 1,
        /// Store of the cluster: exactly one engine.
        pub engine: EngineConfig = required,
        /// Election of the replica that exports with `only_leader`. Unset: the store elects it.
        pub leader: Option<LeaderOptions> = None,
    }
    check = ClusterConfig::check
}

crate::options! {
    /// `engine`: exactly one of these.
    pub struct EngineConfig {
        /// Store in the memory of this process, to try a configuration with one gateway. Other processes do not see
        /// it, and the end of the process loses it.
        pub local: Option<LocalConfig> = None,
        /// Store in a stream of NATS JetStream.
        pub nats: Option<NatsConfig> = None,
        /// Store in a topic of Kafka.
        pub kafka: Option<KafkaConfig> = None,
        /// Store in the replicas themselves, without a broker.
        pub direct: Option<DirectOptions> = None,
    }
    check = EngineConfig::check
}

impl ClusterConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let length = self.name.len();
        if length == 0 || length > MAX_NAME_BYTES || !self.name.bytes().all(is_plain) {
            cx.at(at.child("name"))
                .error("a name has 1 to 64 letters, digits, `-` and `_`");
        }
        if !(1..=MAX_PARTITIONS).contains(&self.partitions) {
            cx.at(at.child("partitions")).error("must be between 1 and 99");
        }
    }
}

impl EngineConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let given = [
            self.local.is_some(),
            self.nats.is_some(),
            self.kafka.is_some(),
            self.direct.is_some(),
        ];
        if given.into_iter().filter(|given| *given).count() != 1 {
            cx.at(at).error("exactly one engine must be given");
        }
    }
}
