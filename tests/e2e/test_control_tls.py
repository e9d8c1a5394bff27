"""A cluster whose control connections show certificates: it serves as any other, takes new certificates while
it runs, and turns away whoever has none of its authority."""
import json
import subprocess

from harness import BIN, Cluster, Process, wait_for
from test_drain import metric

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_authority(folder, name):
    openssl("req", "-x509", *CURVE, "-days", "2", "-subj", f"/CN={name}",
            "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")


def make_certificate(folder, authority, name):
    openssl("req", *CURVE, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr")
    openssl("x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / f"{authority}.pem",
            "-CAkey", folder / f"{authority}.key", "-CAcreateserial", "-days", "2", "-out", folder / f"{name}.pem")


def section(folder, authority, name):
    return {"certificate": str(folder / f"{name}.pem"), "key": str(folder / f"{name}.key"),
            "authority": str(folder / f"{authority}.pem")}


def test_only_who_has_a_certificate_gets_in(tmp_path):
    make_authority(tmp_path, "ours")
    make_certificate(tmp_path, "ours", "node")
    with Cluster(tmp_path, config={"cluster": {"tls": section(tmp_path, "ours", "node")}}) as cluster:
        before = cluster.complete("Hello", max_tokens=8)["choices"][0]["token_ids"]

        # The right token, but another authority's certificate; then none at all.
        make_authority(tmp_path, "theirs")
        make_certificate(tmp_path, "theirs", "stranger")
        refused = 'baton_control_refused_total{why="untrusted"}'
        for name, tls in (("stranger", section(tmp_path, "theirs", "stranger")), ("plain", {})):
            count = metric(cluster, "gateway", refused)
            config = json.loads(cluster.file.read_text())
            config["cluster"]["tls"] = tls
            config["decode"]["pool"][0] |= {"name": name, "control_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"}
            path = tmp_path / f"{name}.yaml"
            path.write_text(json.dumps(config))
            node = Process(name, [str(BIN / "baton-decode"), "--config", str(path), "--name", name],
                           tmp_path / f"{name}.log")
            node.start()
            try:
                wait_for(f"the refusal of {name}", lambda: metric(cluster, "gateway", refused) > count)
                assert name not in {entry["name"] for entry in cluster.get("/baton/status")["nodes"]}
            finally:
                node.stop()

        # Renewed certificates, taken without a restart by the next connections.
        make_certificate(tmp_path, "ours", "node")
        cluster["prefill-0"].kill()
        cluster["prefill-0"].start()
        wait_for("the pair", cluster.ready)
        assert cluster.complete("Hello", max_tokens=8)["choices"][0]["token_ids"] == before
