"""Pictures of an object store: s3:// against moto's server, which is not among what tests install."""

import pytest

from privcirnet.data.picture import Preparation
from privcirnet.data.pictures import Pictures, read_ahead
from privcirnet.errors import RuleError
from tests.page.samples import picture

pytest.importorskip("s3fs", reason="pip install 'privcirnet[s3]'")
servers = pytest.importorskip("moto.server", reason="pip install 'moto[s3]' flask flask-cors")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def bucket():
    """A bucket with two pictures and a text, of a server on loopback."""
    import s3fs

    server = servers.ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        s3fs.S3FileSystem.clear_instance_cache()
        store = s3fs.S3FileSystem()
        store.mkdir("shop")
        for name in ("shelf/one.png", "shelf/deep/two", "shelf/notes.txt"):
            store.pipe(f"shop/{name}", picture())
        yield
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_a_bucket(bucket):
    found = Pictures("s3://shop/shelf")
    coming = list(read_ahead(found, found.files(), Preparation((1, 8, 8), 16)))
    assert [each.path for each in coming] == ["s3://shop/shelf/one.png", "s3://shop/shelf/deep/two"]
    assert all(each.pixels is not None for each in coming)
    assert [file.path for file in Pictures("s3://shop").files()] == [each.path for each in coming]


@pytest.mark.parametrize("source", ["s3://shop/nothing", "s3://no-such-bucket", "s3://no-such-bucket/shelf"])
def test_no_such_bucket_or_prefix(bucket, source):
    with pytest.raises(
        RuleError, match=f"a folder or URL of pictures that can be listed: got {source}: nothing is there"
    ):
        Pictures(source)
