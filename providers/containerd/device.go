package containerd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// removeDevice removes a network device of this host, and with it the other end of a pair. One
// that does not exist is no error. A namespace may outlive its last process by minutes, as
// long as connections are being closed in it, and its device would hold its address.
func removeDevice(name string) error {
	device, err := net.InterfaceByName(name)
	if err != nil {
		if _, statErr := os.Stat("/sys/class/net/" + name); errors.Is(statErr, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("find device %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("remove device %s: %w", name, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is lost
	const size = unix.SizeofNlMsghdr + unix.SizeofIfInfomsg
	var m [size]byte
	binary.NativeEndian.PutUint32(m[0:], size)
	binary.NativeEndian.PutUint16(m[4:], unix.RTM_DELLINK)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	binary.NativeEndian.PutUint32(m[unix.SizeofNlMsghdr+4:], uint32(device.Index))
	if err := unix.Sendto(fd, m[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("remove device %s: %w", name, err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("remove device %s: no answer of %d bytes: %w", name, n, err)
	}
	code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:]))
	if errno := unix.Errno(-code); errno != 0 && errno != unix.ENODEV {
		return fmt.Errorf("remove device %s: %w", name, errno)
	}
	return nil
}
