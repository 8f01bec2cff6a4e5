//! The rules of the house, read from the crates' own manifests: who may know whom.

use std::{collections::BTreeMap, fs, path::Path};

/// Path dependencies of each crate of the workspace, dev-dependencies included.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = |path: &Path| fs::read_to_string(path.join("Cargo.toml")).unwrap().parse::<toml::Table>().unwrap();
    let members: Vec<String> =
        manifest(root)["workspace"]["members"].as_array().unwrap().iter().map(|m| m.as_str().unwrap().into()).collect();
    let name = |member: &str| member.rsplit('/').next().unwrap().to_string();
    let of_ours: Vec<String> = members.iter().map(|m| name(m)).collect();
    let depends = |member: &String| {
        let table = manifest(&root.join(member));
        let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
        let names = sections.iter().filter_map(|s| table.get(*s)?.as_table()).flat_map(|t| t.keys().cloned());
        (member.clone(), names.filter(|n| of_ours.contains(n)).collect())
    };
    members.iter().map(depends).collect()
}

#[test]
fn hardware_and_golden_never_see_each_other() {
    let dependencies = dependencies();
    assert!(dependencies.len() > 5);
    for (member, seen) in &dependencies {
        let allowed: &[&str] = match member.as_str() {
            "hw/rtl" | "golden" => &[],
            "hw/numeric" => &["rtl"],
            "hw/npu" => &["rtl", "numeric", "mvp", "dma", "nkz", "vector"],
            "host" => &["npu", "golden"],
            "tb" => continue,
            block if block.starts_with("hw/") => &["rtl", "numeric"],
            other => panic!("{other}: a crate that the house has no rule for"),
        };
        for other in seen {
            assert!(allowed.contains(&other.as_str()), "{member} may not depend on {other}");
        }
    }
}
