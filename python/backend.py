"""Builds the wheel with the standard library alone: `python backend.py DIR`, or as the back end of pip."""
import base64
import hashlib
import os
import sys
import zipfile

NAME, VERSION = "blis_train_coefficients", "0.1.0"
HERE = os.path.dirname(os.path.abspath(__file__))
METADATA = "Metadata-Version: 2.1\nName: blis-train-coefficients\nVersion: %s\nRequires-Python: >=3.8\n" % VERSION
WHEEL = "Wheel-Version: 1.0\nGenerator: blis-train-coefficients\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel, the same bytes every time, and returns its name."""
    files = {}
    package = os.path.join(HERE, NAME)
    for name in sorted(os.listdir(package)):
        if name.endswith((".py", ".json", "py.typed")):
            with open(os.path.join(package, name), "rb") as f:
                files[NAME + "/" + name] = f.read()
    info = "%s-%s.dist-info/" % (NAME, VERSION)
    files[info + "METADATA"], files[info + "WHEEL"] = METADATA.encode(), WHEEL.encode()
    record = "".join("%s,sha256=%s,%d\n" % (n, base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b"=").decode(), len(d))
                     for n, d in files.items())
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    wheel = "%s-%s-py3-none-any.whl" % (NAME, VERSION)
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            z.writestr(entry, data)
    return wheel


if __name__ == "__main__":
    print(build_wheel(sys.argv[1] if len(sys.argv) > 1 else "."))
