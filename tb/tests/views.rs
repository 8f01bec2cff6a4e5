//! The committed GTKWave views against the waveforms that they are for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tb::showcase::SHOWCASES;
use tb::wave::{Shown, shown};

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../waves")
}

/// Path and width of every variable.
fn variables(file: &Path) -> BTreeMap<String, u32> {
    let wave = wellen::simple::read(file).unwrap();
    let hierarchy = wave.hierarchy();
    let width = |v: &wellen::Var| if v.is_bit_vector(hierarchy) { v.length(hierarchy).unwrap_or(1) } else { 1 };
    hierarchy.all_vars().map(|v| (hierarchy[v].full_name(hierarchy), width(&hierarchy[v]))).collect()
}

fn missing(view: &str, variables: &BTreeMap<String, u32>) -> Vec<Shown> {
    shown(view).into_iter().filter(|s| variables.get(&s.path) != Some(&s.width)).collect()
}

#[test]
fn every_signal_of_every_view_is_in_its_waveform() {
    for showcase in SHOWCASES {
        let file = std::env::temp_dir().join(format!("magpie-view-{}-{}.vcd", std::process::id(), showcase.name));
        let shot = showcase.write(&file).unwrap();
        let variables = variables(&file);
        std::fs::remove_file(&file).unwrap();
        let path = committed().join(showcase.name).with_extension("gtkw");
        let view = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}; make views", path.display()));
        assert!(shown(&view).len() > 6, "{} shows next to nothing", path.display());
        let missing = missing(&view, &variables);
        assert!(missing.is_empty(), "{}: not in the waveform: {missing:?}", path.display());
        assert_eq!(view, shot.view, "{} is not what a run gives: make views", path.display());
    }
}

#[test]
fn a_view_of_what_is_not_there_is_found_out() {
    let variables = BTreeMap::from([("top.a".to_string(), 4), ("top.b".to_string(), 1)]);
    let view = "[*] x\n@22\n+{first} top.a[3:0]\n@28\ntop.b\n@800200\n-group\n";
    assert_eq!(missing(view, &variables), []);
    for wrong in ["+{first} top.c[3:0]\n", "top.a[7:0]\n", "top.b.c\n"] {
        assert_eq!(missing(&(view.to_string() + wrong), &variables).len(), 1, "{wrong}");
    }
}
