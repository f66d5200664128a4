// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn the_table_is_indexed_by_its_ids() {
    for (index, row) in KINDS.iter().enumerate() {
        assert_eq!(usize::from(row.id), index);
        assert_eq!(NixlKind::by_name(row.name), Some(row));
        assert_eq!(NixlKind::by_name(&row.string_name()), Some(row));
        assert_eq!(row.status.is_some(), row.category == Category::Error);
    }
    assert_eq!(KINDS.iter().filter(|row| row.status.is_some()).count(), 12);
}

#[test]
fn status_strings_of_version_1_are_error_kinds() {
    let row = NixlKind::by_name("NIXL_ERR_NOT_FOUND").unwrap();
    assert_eq!((row.id, row.status), (11, Some("not_found")));
    assert_eq!(NixlKind::by_name("NIXL_ERR_NONE"), None);
    assert_eq!(NixlKind::by_name("agent_tx"), None);
}

#[test]
fn categories_follow_the_name_prefix() {
    let prefixes = [
        ("agent_memory_", Category::Memory),
        ("agent_tx_", Category::Transfer),
        ("agent_rx_", Category::Transfer),
        ("agent_xfer_", Category::Performance),
        ("agent_err_", Category::Error),
        ("agent_telemetry_", Category::System),
    ];
    for row in &KINDS[..KNOWN_KINDS] {
        let (_, category) = prefixes
            .iter()
            .find(|(prefix, _)| row.name.starts_with(prefix))
            .unwrap();
        assert_eq!(row.category, *category, "{}", row.name);
        assert_eq!(Category::by_name(category.name()), Some(*category));
    }
    assert_eq!(Category::by_name("NIXL_TELEMETRY_ERROR"), Some(Category::Error));
    assert_eq!(Category::by_name("nothing"), None);
}

#[test]
fn a_name_ends_at_its_first_nul_whatever_follows() {
    let mut names = Names::default();
    let slot = |text: &[u8]| {
        let mut name = [0xee; NAME_SIZE];
        name[..text.len()].copy_from_slice(text);
        name
    };
    assert_eq!(names.resolve(&slot(b"agent_rx_bytes\0"), 1), 1);
    assert_eq!(names.resolve(&slot(b"NIXL_ERR_BACKEND\0"), 4), 10);
    assert_eq!(names.resolve(&slot(b"\0"), 4), UNKNOWN);
    let own = names.resolve(&slot(b"\xff\xfe\0"), -1);
    assert_eq!((own, names.name(own)), (FIRST_OWN, "\u{fffd}\u{fffd}"));
    assert_eq!(names.category(own), Category::Custom);
    assert_eq!(names.name(own + 1), "unknown_event");
}

proptest::proptest! {
    #[test]
    fn a_key_is_the_name_up_to_its_first_nul(name in proptest::array::uniform32(0..4_u8)) {
        let kept = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_SIZE);
        let mut expected = [0; NAME_SIZE];
        expected[..kept].copy_from_slice(&name[..kept]);
        proptest::prop_assert_eq!(key(&name), expected);
    }

    #[test]
    fn bytes_with_high_bits_are_part_of_a_name(name in proptest::array::uniform32(0x7e..0x82_u8)) {
        proptest::prop_assert_eq!(key(&name), name);
    }
}

#[test]
fn known_names_have_places_of_their_own() {
    let mut names: Vec<NameKey> = KINDS
        .iter()
        .flat_map(|kind| {
            [
                slot_name(kind.name.as_bytes()),
                slot_name(kind.string_name().as_bytes()),
            ]
        })
        .collect();
    names.push(slot_name(b""));
    names.sort_unstable();
    names.dedup();
    let mut places: Vec<usize> = names.iter().map(|name| slot_of(words(name))).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), names.len());
}

proptest::proptest! {
    /// Earlier names in a slot do not matter, though names share slots.
    #[test]
    fn a_name_has_the_same_kind_each_time_it_comes(
        names in proptest::collection::vec(proptest::array::uniform32(0..3_u8), 1..40),
        order in proptest::collection::vec(proptest::prelude::any::<proptest::sample::Index>(), 1..200),
    ) {
        let mut table = Names::default();
        let mut kinds = HashMap::new();
        for at in order {
            let name = at.get(&names);
            let kind = table.resolve(name, 0);
            proptest::prop_assert_eq!(*kinds.entry(key(name)).or_insert(kind), kind);
        }
    }
}
