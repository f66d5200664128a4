// SPDX-License-Identifier: Apache-2.0

//! The topics of messages, and the attributes of their headers.

use std::collections::HashMap;

use tidegate_kafka::transport::IncomingMessage;

use super::config::KafkaReceiverConfig;
use crate::component::ReceiverContext;
use crate::net::Coding;
use crate::receivers::messages::{ContentDecoder, MessageContent, MessageLimits, MessageRoute, Taken, Why};

/// The way in for all topics.
pub(super) struct MessageDecoder {
    routes: HashMap<String, MessageRoute>,
    content: ContentDecoder,
    /// Headers that become resource attributes.
    headers: Vec<String>,
}

impl MessageDecoder {
    /// The way in; an error names a topic of several signals.
    pub(super) fn new(config: &KafkaReceiverConfig, cx: &ReceiverContext) -> Result<Self, String> {
        let mut routes = HashMap::new();
        for entry in cx.entries.iter().flatten() {
            let signal = entry.signal();
            for topic in config.topics(signal) {
                let route = MessageRoute {
                    entry: entry.clone(),
                    encoding: config.encoding(signal),
                };
                if routes.insert(topic.clone(), route).is_some() {
                    return Err(format!(
                        "the topic `{topic}` is read for more than one signal: name another topic"
                    ));
                }
            }
        }
        Ok(Self {
            routes,
            content: ContentDecoder {
                shared: cx.base.shared.clone(),
                limits: MessageLimits {
                    max_elements: config.max_elements_per_item.get(),
                    max_bytes: config.max_batch_size.as_usize(),
                },
            },
            headers: config.wanted_headers().to_vec(),
        })
    }

    pub(super) fn topics(&self) -> Vec<String> {
        self.routes.keys().cloned().collect()
    }

    /// Counts messages of a topic that nobody could decode.
    pub(super) fn fail(&self, topic: &str, messages: usize) {
        if let Some(route) = self.routes.get(topic) {
            route.entry.fail(messages);
        }
    }

    /// Hands a message to the pipelines.
    pub(super) async fn take(&self, message: &IncomingMessage) -> Taken {
        let Some(route) = self.routes.get(&*message.place.topic) else {
            return Taken::Never(Why::Invalid, "no pipeline reads the topic".to_owned());
        };
        let content = MessageContent {
            value: message.value.clone().unwrap_or_default(),
            // It is a slice of its decompressed batch.
            is_shared: true,
            // Kafka compresses batches of messages, and the client decompresses them.
            coding: Coding::Identity,
            attributes: self.attributes(message),
        };
        self.content.take(route, content).await
    }

    /// The attributes of the headers that the message has.
    fn attributes(&self, message: &IncomingMessage) -> Vec<(String, String)> {
        let attribute = |name: &String| {
            let (_, value) = message.headers.iter().find(|(known, _)| known == name)?;
            let value = value.as_deref().unwrap_or_default();
            Some((
                format!("kafka.header.{name}"),
                String::from_utf8_lossy(value).into_owned(),
            ))
        };
        self.headers.iter().filter_map(attribute).collect()
    }
}
