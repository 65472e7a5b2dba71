package posix

import "encoding/binary"

// An access control list of macOS as its kernel hands it out and takes it: a header
// (magic number, two identities that are not used, the number of entries, flags) and
// its entries.
const (
	aclMagic   = 0x012cc16d
	aclHeader  = 4 + 16 + 16 + 4 + 4
	aclCountAt = 4 + 16 + 16
	noACL      = 0xffffffff // in place of the number: there is no list

	aclReference = 4 + 4 // where it is, from the reference on, and its length
)

// aclIn cuts the list out of the answer to a question for it alone: the answer's
// length, the reference, the list. Nil: there is none.
func aclIn(answer []byte) []byte {
	const at = 4
	if len(answer) < at+aclReference {
		return nil
	}
	offset := int64(int32(binary.NativeEndian.Uint32(answer[at:])))
	length := int64(binary.NativeEndian.Uint32(answer[at+4:]))
	from := at + offset
	if offset < aclReference || length < aclHeader || from+length > int64(len(answer)) {
		return nil
	}
	list := answer[from : from+length]
	if binary.NativeEndian.Uint32(list) != aclMagic {
		return nil
	}
	return list
}

// aclOrder is the argument that gives an object a list; nil takes away what it has.
func aclOrder(list []byte) []byte {
	if list == nil {
		list = make([]byte, aclHeader)
		binary.NativeEndian.PutUint32(list, aclMagic)
		binary.NativeEndian.PutUint32(list[aclCountAt:], noACL)
	}
	order := make([]byte, aclReference, aclReference+len(list))
	binary.NativeEndian.PutUint32(order, aclReference)
	binary.NativeEndian.PutUint32(order[4:], uint32(len(list)))
	return append(order, list...)
}
